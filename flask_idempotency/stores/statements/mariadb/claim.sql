-- Give the first caller the right to run. A duplicate key: there is already a record, live or not.
-- Do not wait for whoever has locked the row: it may be in a view or a phase, however long that takes.
SET STATEMENT innodb_lock_wait_timeout = 0 FOR
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, point, attempt, created_at, lease_until)
VALUES (:id, :scope, :method, :path, :fingerprint, 'running', :token, :point,
        1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL :lease MICROSECOND)
