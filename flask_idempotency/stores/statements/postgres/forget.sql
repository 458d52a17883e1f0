-- Delete the checkpoints of a record that was begun anew: they are of an epoch that has ended.
DELETE FROM idempotency_checkpoint
 WHERE record_id = :id
   AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND token = :token AND point IS NULL)
