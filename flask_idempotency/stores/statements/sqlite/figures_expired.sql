-- Count the expired records by their index, the oldest first, and say how long ago that one expired. Are these all?
SELECT count(*), (julianday('now') - 2440587.5) * 86400.0 - min(expires_at), 1
  FROM (SELECT expires_at
          FROM idempotency_record
         WHERE state = 'finished' AND expires_at <= (julianday('now') - 2440587.5) * 86400.0
         ORDER BY expires_at
         LIMIT :limit) AS counted
