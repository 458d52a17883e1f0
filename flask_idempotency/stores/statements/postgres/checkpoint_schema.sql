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
