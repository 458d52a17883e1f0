-- Read the checkpoints of a record in the order in which they were made.
SELECT name, kind, state, generation, result, position, clock_timestamp() - at
  FROM idempotency_checkpoint
 WHERE record_id = :id
 ORDER BY position
