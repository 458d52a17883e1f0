-- Read the requests that were interrupted and can be resumed, the oldest interruption first.
SELECT @record
  FROM idempotency_record
 WHERE state = 'running' AND (token IS NULL OR lease_until <= clock_timestamp())
   AND id IN (SELECT record_id FROM idempotency_checkpoint WHERE kind = 'request' AND at <= clock_timestamp() - :age)
 ORDER BY lease_until
 LIMIT :limit
