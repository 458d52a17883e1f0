-- One row for each (scope, key), found by the digest of both; the key itself is not stored.
-- What has a fixed width comes first, where nothing has to be padded.
CREATE TABLE IF NOT EXISTS idempotency_record (
    created_at  timestamptz NOT NULL,
    lease_until timestamptz,
    expires_at  timestamptz,
    attempt     integer     NOT NULL,
    status      smallint,
    id          bytea       NOT NULL PRIMARY KEY CHECK (octet_length(id) = 32),
    scope       text        NOT NULL,
    method      text        NOT NULL,
    path        text        NOT NULL,
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 33),
    state       text        NOT NULL CHECK (state IN ('running', 'finished', 'quarantined')),
    token       bytea,
    headers     text,
    body        bytea,
    CHECK (state <> 'finished' OR (expires_at IS NOT NULL AND status IS NOT NULL)),
    CHECK (state <> 'running' OR lease_until IS NOT NULL)
);

-- The reaper's way to what has expired; running and quarantined records are not in it at all.
CREATE INDEX IF NOT EXISTS idempotency_record_expires_at ON idempotency_record (expires_at) WHERE state = 'finished'
