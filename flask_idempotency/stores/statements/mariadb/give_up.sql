-- Quarantine our own record: only a person can settle it. No row: the claim was lost.
UPDATE idempotency_record
   SET state = 'quarantined', reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :reason)
 WHERE id = :id AND token = :token AND state = 'running'
