-- Count the quarantined records. Without an index of them, this reads every record that has no time of expiry.
SELECT count(*)
  FROM (SELECT 1
          FROM idempotency_record
         WHERE state = 'quarantined' AND expires_at IS NULL
         LIMIT :limit) AS counted
