-- Blank what the phases and effects of a finished record have returned, and its stored request if it has one.
-- They are in the same partition as the record; a running one of the same id keeps its own.
UPDATE idempotency_checkpoint AS c
   SET result = NULL
 WHERE c.record_id = :id AND c.result IS NOT NULL
   AND c.day IN (SELECT day FROM idempotency_record WHERE id = :id AND state = 'finished')
RETURNING c.name
