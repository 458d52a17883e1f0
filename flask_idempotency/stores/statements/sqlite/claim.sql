-- Give the first caller the right to run. No row back: there is already a record, live or not.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, point, attempt, created_at, lease_until)
SELECT :id, :scope, :method, :path, :fingerprint, 'running', :token, :point, 1, clock.now, clock.now + :lease
  FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS clock
 WHERE true
    ON CONFLICT (id) DO NOTHING
RETURNING attempt
