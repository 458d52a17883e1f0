-- Quarantine the records that this transaction has locked for it.
UPDATE idempotency_record
   SET state = 'quarantined', reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :reason)
 WHERE id IN :ids
