-- Restart our own lease from now. No row back: the claim was lost.
UPDATE idempotency_record
   SET lease_until = (julianday('now') - 2440587.5) * 86400.0 + :lease
 WHERE id = :id AND token = :token AND state = 'running'
RETURNING id
