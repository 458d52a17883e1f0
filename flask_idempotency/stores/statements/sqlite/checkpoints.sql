-- Read how far the run of a record has come, in the order in which it went.
SELECT name, kind, state, generation, result, position, (julianday('now') - 2440587.5) * 86400.0 - at
  FROM idempotency_checkpoint
 WHERE record_id = :id
 ORDER BY position
