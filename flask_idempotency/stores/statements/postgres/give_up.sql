-- Quarantine our own record: only a person can settle it. No row back: the claim was lost.
UPDATE idempotency_record
   SET state = 'quarantined', reason = coalesce(reason || '; ', '') || :reason
 WHERE id = :id AND token = :token AND state = 'running'
RETURNING id
