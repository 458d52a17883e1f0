-- Read how far the run of a record has come, in the order in which it went.
SELECT name, kind, state, generation, result, position, clock_timestamp() - at
  FROM idempotency_checkpoint
 WHERE record_id = :id
 ORDER BY position
