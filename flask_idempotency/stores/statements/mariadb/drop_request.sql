-- Delete the stored request of a finished record: nobody has to resume it.
DELETE FROM idempotency_checkpoint
 WHERE record_id = :id AND kind = 'request'
   AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND state = 'finished')
