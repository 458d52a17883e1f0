-- Delete the request of a record that is finished: nobody has to go on with it.
DELETE FROM idempotency_checkpoint
 WHERE record_id = :id AND kind = 'request'
   AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND state = 'finished')
