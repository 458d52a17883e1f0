-- Finish our own record as complete does, delete its stored request, and let its other checkpoints follow it.
WITH running AS (
@running
), finished AS (
@move
), passed AS (
    DELETE FROM idempotency_checkpoint_open
     WHERE record_id IN (SELECT id FROM finished)
    RETURNING *
), kept AS (
    INSERT INTO idempotency_checkpoint (record_id, name, at, position, generation, day, kind, state, result)
    SELECT record_id, name, at, position, generation, finished.day, kind, state, result
      FROM passed, finished
     WHERE kind <> 'request'
)
SELECT id FROM finished
