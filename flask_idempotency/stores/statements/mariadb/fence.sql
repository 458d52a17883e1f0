-- Advance our own record by one point. No row: the claim was lost, or the record is at another point.
-- It is the first statement of whatever it guards: a later caller waits for this row, and then finds another token or
-- point. Repeated after a lost answer, it changes nothing and counts the same.
UPDATE idempotency_record
   SET point = :point
 WHERE id = :id AND token = :token AND state = 'running' AND (point <=> :previous OR point = :point)
