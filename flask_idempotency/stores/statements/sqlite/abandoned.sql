-- Read the requests that were interrupted and can be resumed, the oldest interruption first.
SELECT @record
  FROM idempotency_record
 WHERE state = 'running' AND (token IS NULL OR lease_until <= (julianday('now') - 2440587.5) * 86400.0)
   AND id IN (SELECT record_id FROM idempotency_checkpoint WHERE kind = 'request' AND at <= (julianday('now') - 2440587.5) * 86400.0 - :age)
 ORDER BY lease_until
 LIMIT :limit
