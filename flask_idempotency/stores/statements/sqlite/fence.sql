-- Advance our own record by one point. No row back: the claim was lost, or the record is at another point.
-- It is the first statement of whatever it guards: a later caller waits for this row, and then finds another token or
-- point.
UPDATE idempotency_record
   SET point = :point
 WHERE id = :id AND token = :token AND state = 'running' AND point IS :previous
RETURNING id
