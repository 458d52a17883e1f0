-- Put a finished record in the place of one that no longer counts: expired, or left by a lease that was ended or has passed.
-- No row back: it came back to life meanwhile.
UPDATE idempotency_record
   SET scope = :scope, method = :method, path = :path, fingerprint = :fingerprint, state = 'finished', token = :token,
       attempt = CASE state WHEN 'finished' THEN 1 ELSE attempt END,
       created_at = CASE state WHEN 'finished' THEN clock_timestamp() ELSE created_at END,
       point = NULL, reason = NULL, lease_until = NULL, expires_at = clock_timestamp() + :retention,
       status = :status, headers = :headers, body = :body
 WHERE id = :id
   AND ((state = 'finished' AND expires_at <= clock_timestamp())
        OR (state = 'running' AND point IS NULL AND fingerprint = :fingerprint
            AND (token IS NULL OR lease_until <= clock_timestamp())))
RETURNING set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
