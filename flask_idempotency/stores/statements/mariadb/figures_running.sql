-- Count the running records, and say how old the oldest is. What has no time of expiry is running or quarantined; the
-- index of the times of creation would lead through all that is finished.
SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(created_at), UTC_TIMESTAMP(6))
  FROM (SELECT created_at
          FROM idempotency_record FORCE INDEX (idempotency_record_expires_at)
         WHERE state = 'running' AND expires_at IS NULL
         LIMIT :limit) AS counted
