-- Give the first caller the right to run. No row back: there is already a record, live or not.
-- No unique index spans the partitions, so the caller holds the lock on the id, which a statement before this one took.
-- The claim is flushed to disk whatever the role's default says, because a claim forgotten in a database crash would be
-- given twice.
INSERT INTO idempotency_record_open
       (id, scope, method, path, fingerprint, state, token, point, attempt, created_at, lease_until)
SELECT :id, :scope, :method, :path, :fingerprint, 'running', :token, :point::text,
       1, clock_timestamp(), clock_timestamp() + :lease
 WHERE NOT EXISTS (SELECT FROM idempotency_record WHERE id = :id AND @days)
    ON CONFLICT (id) DO NOTHING
RETURNING id, set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
