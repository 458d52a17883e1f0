-- Advance our own record by one point, as the first statement of a phase's transaction. No row back: the claim was
-- lost, or the record is at another point.
-- The lease stands still during a phase, because nobody could renew it: while the transaction is open, the column holds
-- the time that was left instead of the lease's end.
UPDATE idempotency_record
   SET point = :point, lease_until = lease_until - (julianday('now') - 2440587.5) * 86400.0
 WHERE id = :id AND token = :token AND state = 'running' AND point IS :previous
RETURNING id
