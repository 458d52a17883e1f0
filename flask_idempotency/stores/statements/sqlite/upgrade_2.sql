-- From version 1 or 2 to 3: shorten fingerprints. SQLite cannot change a table's constraint, so the table is made
-- again.
ALTER TABLE idempotency_record RENAME TO idempotency_record_2;
DROP INDEX IF EXISTS idempotency_record_expires_at;
CREATE TABLE idempotency_record (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    scope       TEXT    NOT NULL,
    method      TEXT    NOT NULL,
    path        TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 16),
    state       TEXT    NOT NULL CHECK (state IN ('running', 'finished', 'quarantined')),
    token       BLOB,
    attempt     INTEGER NOT NULL,
    created_at  REAL    NOT NULL,
    lease_until REAL,
    expires_at  REAL,
    status      INTEGER,
    headers     TEXT,
    body        BLOB,
    CHECK (state <> 'finished' OR (expires_at IS NOT NULL AND status IS NOT NULL)),
    CHECK (state <> 'running' OR lease_until IS NOT NULL)
) WITHOUT ROWID;
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, lease_until, expires_at,
        status, headers, body)
SELECT id, scope, method, path, substr(fingerprint, 1, 16), state, token, attempt, created_at, lease_until, expires_at,
       status, headers, body
  FROM idempotency_record_2;
DROP TABLE idempotency_record_2
