-- Read the checkpoints of a record in the order in which they were made.
SELECT name, kind, state, generation, result, position, (julianday('now') - 2440587.5) * 86400.0 - at
  FROM idempotency_checkpoint
 WHERE record_id = :id
 ORDER BY position
