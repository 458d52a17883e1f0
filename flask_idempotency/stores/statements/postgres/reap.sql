-- Delete a few finished records that expired more than the grace ago, and their checkpoints. A running or quarantined
-- record is never reaped. Rows that somebody holds are passed over; the rest are looked at again once they are locked.
-- The few are gathered into an array, once: as a plain subquery they may be chosen anew for every row, and be many.
-- The statement's own time, unlike the clock's, lets the index end the search where the expired records end.
-- What a crash or a failover forgets of it is deleted again, so it waits neither for the disk nor for a standby.
WITH gone AS (
    DELETE FROM idempotency_record
     WHERE id = ANY (ARRAY(SELECT id
                             FROM idempotency_record
                            WHERE state = 'finished' AND expires_at < statement_timestamp() - :grace
                            ORDER BY expires_at
                            LIMIT :limit
                              FOR UPDATE SKIP LOCKED))
    RETURNING id
), gone_with_them AS (
    DELETE FROM idempotency_checkpoint
     WHERE record_id IN (SELECT id FROM gone)
)
SELECT id, set_config('synchronous_commit', 'off', true) FROM gone
