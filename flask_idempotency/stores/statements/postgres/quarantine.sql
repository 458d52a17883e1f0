-- Take a record out of service after too many owners died over it. No row back: a rival took it over meanwhile.
UPDATE idempotency_record
   SET state = 'quarantined', reason = coalesce(reason || '; ', '') || :reason
 WHERE id = :id AND state = 'running' AND token IS NOT NULL AND attempt > :takeovers AND lease_until <= clock_timestamp()
RETURNING id
