-- Finish our own record, once. Retention counts from here. No row: the claim was lost, or the record is already
-- finished.
-- A lease that has passed is no obstacle while the token is still ours. The token stays, to show whose answer it is.
UPDATE idempotency_record
   SET state = 'finished', status = :status, headers = :headers, body = :body, lease_until = NULL,
       expires_at = UTC_TIMESTAMP(6) + INTERVAL :retention MICROSECOND
 WHERE id = :id AND token = :token AND state = 'running' AND point <=> :point
