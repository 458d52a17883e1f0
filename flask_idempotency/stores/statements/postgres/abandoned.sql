-- Read requests that were left in the middle and can be gone on with; the one that was left first comes first.
SELECT @record
  FROM idempotency_record
 WHERE state = 'running' AND (token IS NULL OR lease_until <= clock_timestamp())
   AND id IN (SELECT record_id FROM idempotency_checkpoint WHERE kind = 'request' AND at <= clock_timestamp() - :age)
 ORDER BY lease_until
 LIMIT :limit
