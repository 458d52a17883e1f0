-- Move our own record on by one point, first in the transaction of a phase. No row back: the claim was lost, or it does not
-- stand where it stood. The lease of a phase stands still, for nobody could renew it: as long as the transaction is open,
-- what is left of it is in the place of its end.
UPDATE idempotency_record
   SET point = :point, lease_until = lease_until - (julianday('now') - 2440587.5) * 86400.0
 WHERE id = :id AND token = :token AND state = 'running' AND point IS :previous
RETURNING id
