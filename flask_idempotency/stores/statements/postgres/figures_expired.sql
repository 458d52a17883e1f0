-- Count the expired records by their index, the oldest first, and say how long ago that one expired. Are these all?
SELECT count(*), statement_timestamp() - min(expires_at), true
  FROM (SELECT expires_at
          FROM idempotency_record
         WHERE state = 'finished' AND expires_at <= statement_timestamp()
         ORDER BY expires_at
         LIMIT :limit) AS counted
