-- One row for each (scope, key), found by the digest of both; the key itself is not stored.
-- Times are seconds since 1970 by this machine's clock, which all workers of one file share.
CREATE TABLE IF NOT EXISTS idempotency_record (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    scope       TEXT    NOT NULL,
    method      TEXT    NOT NULL,
    path        TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 33),
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

-- The reaper's way to what has expired; running and quarantined records are not in it at all.
CREATE INDEX IF NOT EXISTS idempotency_record_expires_at ON idempotency_record (expires_at) WHERE state = 'finished'
