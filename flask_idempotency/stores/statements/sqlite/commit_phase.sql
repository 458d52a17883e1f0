-- Add a phase's checkpoint to its work; both are committed, or neither. It fails, and the work with it, unless this
-- same transaction has moved the record on to it: a checkpoint must have a record.
INSERT INTO idempotency_checkpoint (record_id, name, position, kind, state, generation, result, at)
VALUES ((SELECT id FROM idempotency_record
          WHERE id = :id AND token = :token AND state = 'running' AND point = :point),
        :name, :position, :kind, :progress, :generation, :result, (julianday('now') - 2440587.5) * 86400.0)
RETURNING name
