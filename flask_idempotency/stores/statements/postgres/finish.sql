-- Add a finished record to the work that made its answer; both are committed, or neither. The primary key decides
-- between rivals.
-- The answer is flushed to disk whatever the role's default says: once given, it must be kept.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, expires_at, status, headers, body)
VALUES (:id, :scope, :method, :path, :fingerprint, 'finished', :token, 1,
        clock_timestamp(), clock_timestamp() + :retention, :status, :headers, :body)
RETURNING set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
