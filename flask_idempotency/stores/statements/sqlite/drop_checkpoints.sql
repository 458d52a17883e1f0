-- Delete the checkpoints of a record that starts again after its expiry: they belong to the expired epoch.
DELETE FROM idempotency_checkpoint
 WHERE record_id = :id
   AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND token = :token AND point IS NULL)
