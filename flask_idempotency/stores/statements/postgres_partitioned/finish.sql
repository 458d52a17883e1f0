-- Add a finished record to the work that made its answer, in the partition of the day of its expiry; both are
-- committed, or neither. The lock on the id, held since the request was entered, decides between rivals.
-- The answer is flushed to disk whatever the role's default says: once given, it must be kept.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, day, expires_at, status, headers, body)
SELECT :id, :scope, :method, :path, :fingerprint, 'finished', :token, 1, clock_timestamp(), ends.day, ends.at,
       :status::smallint, :headers::text, :body::bytea
  FROM (@ends) AS ends
RETURNING set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
