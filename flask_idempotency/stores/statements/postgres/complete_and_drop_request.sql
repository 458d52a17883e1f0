-- Finish our own record as complete does, and delete its stored request: nobody has to resume it.
WITH finished AS (
@complete
), dropped AS (
    DELETE FROM idempotency_checkpoint
     WHERE kind = 'request' AND record_id IN (SELECT id FROM finished)
)
SELECT id FROM finished
