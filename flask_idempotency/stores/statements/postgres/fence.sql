-- Move our own record on by one point. No row back: the claim was lost, or it does not stand where it stood.
-- The first statement of whatever it guards: who comes later waits for this row, and then finds another token or point.
UPDATE idempotency_record
   SET point = :point
 WHERE id = :id AND token = :token AND state = 'running' AND point IS NOT DISTINCT FROM :previous
   AND set_config('lock_timeout', '2s', true) IS NOT NULL
RETURNING id
