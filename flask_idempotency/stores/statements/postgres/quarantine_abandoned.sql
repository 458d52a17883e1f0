-- Quarantine a few running records that nobody has held for that long and that have passed a phase or effect.
-- Skip rows that are locked, and check the others again after locking them.
UPDATE idempotency_record
   SET state = 'quarantined', reason = coalesce(reason || '; ', '') || :reason
 WHERE id = ANY (ARRAY(SELECT id
                         FROM idempotency_record
                        WHERE state = 'running' AND expires_at IS NULL AND point <> :request
                          AND created_at < statement_timestamp() - :age
                          AND lease_until < statement_timestamp() - :age
                        ORDER BY created_at
                        LIMIT :limit
                          FOR UPDATE SKIP LOCKED))
RETURNING id
