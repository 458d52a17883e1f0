-- Add the checkpoint of a phase to the work that it stands for; both are committed, or neither. It fails, and the work
-- with it, unless the record has been moved on to it in this very transaction: a checkpoint must have a record.
INSERT INTO idempotency_checkpoint (record_id, name, position, kind, state, generation, result, at)
VALUES ((SELECT id FROM idempotency_record
          WHERE id = :id AND token = :token AND state = 'running' AND point = :point),
        :name, :position, :kind, :progress, :generation, :result, (julianday('now') - 2440587.5) * 86400.0)
RETURNING name
