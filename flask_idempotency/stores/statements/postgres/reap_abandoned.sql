-- Delete a few running records that nobody has held for so long and that have come to no phase or effect, and their
-- stored requests. Rows that somebody holds are passed over; the rest are looked at again once they are locked.
-- What a crash or a failover forgets of it is deleted again, so it waits neither for the disk nor for a standby.
WITH gone AS (
    DELETE FROM idempotency_record
     WHERE id = ANY (ARRAY(SELECT id
                             FROM idempotency_record
                            WHERE state = 'running' AND expires_at IS NULL AND (point IS NULL OR point = :request)
                              AND created_at < statement_timestamp() - :age
                              AND lease_until < statement_timestamp() - :age
                            ORDER BY created_at
                            LIMIT :limit
                              FOR UPDATE SKIP LOCKED))
    RETURNING id
), gone_with_them AS (
    DELETE FROM idempotency_checkpoint
     WHERE record_id IN (SELECT id FROM gone)
)
SELECT id, set_config('synchronous_commit', 'off', true) FROM gone
