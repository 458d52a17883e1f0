-- End our own lease, so that the next request runs at once. Nothing is deleted. No row back: the claim was lost.
UPDATE idempotency_record
   SET lease_until = clock_timestamp(), token = NULL
 WHERE id = :id AND token = :token AND state = 'running'
RETURNING id
