-- The tables, made by one at a time: PostgreSQL does not wait for whoever makes the same.
SELECT pg_advisory_xact_lock(7216081425136404003);

-- One row for each (scope, key), found by the digest of both; the key itself is not stored.
-- What has a fixed width comes first, where nothing has to be padded.
CREATE TABLE IF NOT EXISTS idempotency_record (
    created_at  timestamptz NOT NULL,
    lease_until timestamptz,
    expires_at  timestamptz,
    attempt     smallint    NOT NULL,
    status      smallint,
    id          bytea       NOT NULL PRIMARY KEY CHECK (octet_length(id) = 32),
    scope       text        NOT NULL,
    method      text        NOT NULL,
    path        text        NOT NULL,
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 16),
    state       text        NOT NULL CHECK (state IN ('running', 'finished', 'quarantined')),
    token       bytea,
    point       text,
    reason      text,
    headers     text,
    body        bytea,
    CHECK (state <> 'finished' OR (expires_at IS NOT NULL AND status IS NOT NULL)),
    CHECK (state <> 'running' OR lease_until IS NOT NULL)
);

-- The reaper's way to what has expired; running and quarantined records are not in it at all. It needs no more than the
-- minute, and what shares one shares its place in the index.
CREATE INDEX IF NOT EXISTS idempotency_record_expires_at
    ON idempotency_record (date_bin('1 minute', expires_at, timestamptz 'epoch')) WHERE state = 'finished'
;
-- How far the run of a record has come: one row for each phase and effect, and one for a request that is to be resumed.
CREATE TABLE IF NOT EXISTS idempotency_checkpoint (
    at         timestamptz NOT NULL,
    position   smallint    NOT NULL,
    generation smallint    NOT NULL,
    record_id  bytea       NOT NULL CHECK (octet_length(record_id) = 32),
    name       text        NOT NULL,
    kind       text        NOT NULL CHECK (kind IN ('phase', 'effect', 'request')),
    state      text        NOT NULL CHECK (state IN ('sent', 'done', 'void')),
    result     text,
    PRIMARY KEY (record_id, name)
);

-- The completer's way to requests that were left in the middle; a finished one is not in it.
CREATE INDEX IF NOT EXISTS idempotency_checkpoint_request ON idempotency_checkpoint (at) WHERE kind = 'request'
