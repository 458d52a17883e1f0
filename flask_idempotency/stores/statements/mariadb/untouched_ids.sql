-- Lock a few running records that nobody has held for that long and that have passed no phase or effect. Skip rows
-- that are locked.
SELECT id
  FROM idempotency_record
 WHERE state = 'running' AND expires_at IS NULL AND (point IS NULL OR point = :request)
   AND created_at < UTC_TIMESTAMP(6) - INTERVAL :age MICROSECOND
   AND lease_until < UTC_TIMESTAMP(6) - INTERVAL :age MICROSECOND
 ORDER BY created_at
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
