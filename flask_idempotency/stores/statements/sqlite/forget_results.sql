-- Blank what the phases and effects of a finished record have returned, and its stored request if it has one.
UPDATE idempotency_checkpoint
   SET result = NULL
 WHERE record_id = :id AND result IS NOT NULL
   AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND state = 'finished')
RETURNING name
