-- Quarantine a record after too many owners died running it. No row back: another request took it over meanwhile.
UPDATE idempotency_record
   SET state = 'quarantined', reason = coalesce(reason || '; ', '') || :reason
 WHERE id = :id AND state = 'running' AND token IS NOT NULL AND attempt > :takeovers
   AND lease_until <= (julianday('now') - 2440587.5) * 86400.0
RETURNING id
