-- Lock a few finished records that expired longer ago than the grace. Running and quarantined records are never reaped.
-- Skip rows that are locked.
SELECT id
  FROM idempotency_record
 WHERE state = 'finished' AND expires_at < UTC_TIMESTAMP(6) - INTERVAL :grace MICROSECOND
 ORDER BY expires_at
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
