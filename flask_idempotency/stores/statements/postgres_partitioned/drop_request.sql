-- Delete the stored request of a finished record, and let its other checkpoints follow it into its partition.
WITH finished AS (
    SELECT id, day
      FROM idempotency_record
     WHERE id = :id AND @days AND state = 'finished' AND expires_at > clock_timestamp()
), passed AS (
    DELETE FROM idempotency_checkpoint_open
     WHERE record_id IN (SELECT id FROM finished)
    RETURNING *
)
INSERT INTO idempotency_checkpoint (record_id, name, at, position, generation, day, kind, state, result)
SELECT record_id, name, at, position, generation, finished.day, kind, state, result
  FROM passed, finished
 WHERE kind <> 'request'
