-- Quarantine a record after too many owners died running it. No row: another request took it over meanwhile.
UPDATE idempotency_record
   SET state = 'quarantined', reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :reason)
 WHERE id = :id AND state = 'running' AND token IS NOT NULL AND attempt > :takeovers
   AND lease_until <= UTC_TIMESTAMP(6)
