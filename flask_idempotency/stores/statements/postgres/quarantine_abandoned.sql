-- Give a few running records that nobody has held for so long, and that stopped behind a phase or effect, to a person.
-- Rows that somebody holds are passed over; the rest are looked at again once they are locked.
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
