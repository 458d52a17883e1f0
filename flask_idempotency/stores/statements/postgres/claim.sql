-- Give the first caller the right to run. No row back: there is a record already, live or not.
-- A claim that a crash of the database forgets would be given twice, so it is on the disk whatever the role's default says.
-- Who has a row already is not waited for: it may be in the middle of a phase, for as long as that takes.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, point, attempt, created_at, lease_until)
SELECT :id, :scope, :method, :path, :fingerprint, 'running', :token, :point::text,
       1, clock_timestamp(), clock_timestamp() + :lease
 WHERE NOT EXISTS (SELECT FROM idempotency_record WHERE id = :id)
    ON CONFLICT (id) DO NOTHING
RETURNING id, set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
