-- Add a phase's checkpoint to its work; both are committed, or neither. No row: this transaction has not moved the
-- record on to it, and nothing of the work may be committed.
INSERT INTO idempotency_checkpoint (record_id, name, position, kind, state, generation, result, at)
SELECT id, :name, :position, :kind, :progress, :generation, :result, UTC_TIMESTAMP(6)
  FROM idempotency_record
 WHERE id = :id AND token = :token AND state = 'running' AND point = :point
