-- Let our own lease run from now on. No row back: the claim was lost.
-- Whoever renews has other leases to renew as well, so the wait for a row that somebody holds ends.
UPDATE idempotency_record
   SET lease_until = clock_timestamp() + :lease
 WHERE id = :id AND token = :token AND state = 'running'
   AND set_config('lock_timeout', '2s', true) IS NOT NULL
RETURNING id
