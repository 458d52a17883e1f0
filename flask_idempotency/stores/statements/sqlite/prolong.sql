-- Restart the lease at the end of a phase, with what was left of it at the beginning.
UPDATE idempotency_record
   SET lease_until = lease_until + (julianday('now') - 2440587.5) * 86400.0
 WHERE id = :id AND token = :token AND state = 'running' AND point = :point
RETURNING id
