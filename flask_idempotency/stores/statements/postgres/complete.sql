-- Finish our own record, once. Retention counts from here. No row back: the claim was lost, or the record is already
-- finished.
-- A lease that has passed is no obstacle while the token is still ours. The token stays, to show whose answer it is.
-- The answer is flushed to disk whatever the role's default says: once given, it must be kept.
UPDATE idempotency_record
   SET state = 'finished', status = :status, headers = :headers, body = :body, lease_until = NULL,
       expires_at = clock_timestamp() + :retention
 WHERE id = :id AND token = :token AND state = 'running' AND point IS NOT DISTINCT FROM :point
RETURNING id, set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
