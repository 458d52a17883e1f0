-- Read the checkpoints of a record in the order in which they were made: they are in the same partition as the record.
-- An expired one of the same id, whose partition is not dropped yet, has others.
SELECT name, kind, state, generation, result, position, clock_timestamp() - at
  FROM idempotency_checkpoint
 WHERE record_id = :id
   AND day = (SELECT day FROM idempotency_record WHERE id = :id ORDER BY created_at DESC LIMIT 1)
 ORDER BY position
