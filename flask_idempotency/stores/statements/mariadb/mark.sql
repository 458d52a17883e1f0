-- Write a checkpoint, if our own record has been advanced to it. No row: it has not, or is no longer ours.
-- An effect keeps the time at which it was first sent; in a new generation, that time starts again. The time is set
-- first, because each assignment sees the ones before it.
INSERT INTO idempotency_checkpoint (record_id, name, position, kind, state, generation, result, at)
SELECT id, :name, :position, :kind, :progress, :generation, :result, UTC_TIMESTAMP(6)
  FROM idempotency_record
 WHERE id = :id AND token = :token AND state = 'running' AND point = :point
    ON DUPLICATE KEY UPDATE
       at = IF(VALUES(generation) = idempotency_checkpoint.generation AND idempotency_checkpoint.state <> 'void',
               idempotency_checkpoint.at, VALUES(at)),
       state = VALUES(state), generation = VALUES(generation), result = VALUES(result)
RETURNING record_id
