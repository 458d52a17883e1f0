-- Read the checkpoints of a record in the order in which they were made.
SELECT name, kind, state, generation, result, position, TIMESTAMPDIFF(MICROSECOND, at, UTC_TIMESTAMP(6))
  FROM idempotency_checkpoint
 WHERE record_id = :id
 ORDER BY position
