-- Count the running records by their index, and say how old the oldest is.
SELECT count(*), (julianday('now') - 2440587.5) * 86400.0 - min(created_at)
  FROM (SELECT created_at
          FROM idempotency_record
         WHERE state = 'running' AND expires_at IS NULL
         ORDER BY created_at
         LIMIT :limit) AS counted
