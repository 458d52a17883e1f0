-- How far the run of a record has come: one row for each phase and effect, and one for a request that is to be resumed.
CREATE TABLE IF NOT EXISTS idempotency_checkpoint (
    record_id  BLOB    NOT NULL CHECK (length(record_id) = 32),
    name       TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('phase', 'effect', 'request')),
    state      TEXT    NOT NULL CHECK (state IN ('sent', 'done', 'void')),
    generation INTEGER NOT NULL,
    result     TEXT,
    at         REAL    NOT NULL,
    PRIMARY KEY (record_id, name)
) WITHOUT ROWID;

-- The completer's way to requests that were left in the middle; a finished one is not in it.
CREATE INDEX IF NOT EXISTS idempotency_checkpoint_request ON idempotency_checkpoint (at) WHERE kind = 'request'
