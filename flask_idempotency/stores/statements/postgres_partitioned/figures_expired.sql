-- Count the expired records in the open partition, which has an index of them, the oldest first, and say how long ago
-- that one expired. Are these all? No: those of days are dropped with their day, and no index counts them.
SELECT count(*), statement_timestamp() - min(expires_at), false
  FROM (SELECT expires_at
          FROM idempotency_record
         WHERE day = 0 AND state = 'finished' AND expires_at <= statement_timestamp()
         ORDER BY expires_at
         LIMIT :limit) AS counted
