-- Read the requests that were interrupted and can be resumed, the oldest interruption first.
SELECT @record
  FROM idempotency_record
 WHERE state = 'running' AND (token IS NULL OR lease_until <= UTC_TIMESTAMP(6))
   AND id IN (SELECT record_id FROM idempotency_checkpoint
               WHERE kind = 'request' AND at <= UTC_TIMESTAMP(6) - INTERVAL :age MICROSECOND)
 ORDER BY lease_until
 LIMIT :limit
