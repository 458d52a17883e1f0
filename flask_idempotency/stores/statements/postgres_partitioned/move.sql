-- Put that record, finished, into the partition of the day of its expiry. Retention counts from here.
-- The token stays, to show whose answer it is.
-- The answer is flushed to disk whatever the role's default says: once given, it must be kept.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, point, reason, attempt, created_at, day, expires_at,
        status, headers, body)
SELECT id, scope, method, path, fingerprint, 'finished', token, point, reason, attempt, created_at, ends.day, ends.at,
       :status::smallint, :headers::text, :body::bytea
  FROM running, (@ends) AS ends
RETURNING id, day,
          set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
