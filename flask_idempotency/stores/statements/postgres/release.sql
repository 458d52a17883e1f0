-- End our own lease: the next request runs at once. Nothing is deleted. No row back: the claim was lost.
-- A wait that outlived its caller would end the lease at any time later, so it ends first.
UPDATE idempotency_record
   SET lease_until = clock_timestamp(), token = NULL
 WHERE id = :id AND token = :token AND state = 'running'
   AND set_config('lock_timeout', '2s', true) IS NOT NULL
RETURNING id
