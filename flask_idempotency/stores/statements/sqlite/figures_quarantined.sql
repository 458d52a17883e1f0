-- Count the quarantined records. Without an index of them, this reads the table, so it is for small ones.
SELECT count(*)
  FROM (SELECT 1
          FROM idempotency_record
         WHERE state = 'quarantined' AND expires_at IS NULL
         LIMIT :limit) AS counted
