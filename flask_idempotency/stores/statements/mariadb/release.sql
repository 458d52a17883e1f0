-- End our own lease, so that the next request runs at once. Nothing is deleted. No row: the claim was lost.
UPDATE idempotency_record
   SET lease_until = UTC_TIMESTAMP(6), token = NULL
 WHERE id = :id AND token = :token AND state = 'running'
