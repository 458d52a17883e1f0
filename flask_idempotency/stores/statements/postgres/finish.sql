-- Add a finished record to the work that made its answer; both are committed, or neither. The key decides between rivals.
-- An answer given is an answer kept, whatever the role's default says.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, expires_at, status, headers, body)
VALUES (:id, :scope, :method, :path, :fingerprint, 'finished', :token, 1,
        clock_timestamp(), clock_timestamp() + :retention, :status, :headers, :body)
RETURNING set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
