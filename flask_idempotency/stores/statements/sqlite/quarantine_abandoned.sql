-- Quarantine a few running records that nobody has held for that long and that have passed a phase or effect.
UPDATE idempotency_record
   SET state = 'quarantined', reason = coalesce(reason || '; ', '') || :reason
 WHERE id IN (SELECT id
               FROM idempotency_record
              WHERE state = 'running' AND expires_at IS NULL AND point <> :request
                AND created_at < (julianday('now') - 2440587.5) * 86400.0 - :age
                AND lease_until < (julianday('now') - 2440587.5) * 86400.0 - :age
              ORDER BY created_at, id
              LIMIT :limit)
RETURNING id
