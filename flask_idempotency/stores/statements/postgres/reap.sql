-- Delete a few finished records that expired longer ago than the grace, with their checkpoints. Running and quarantined
-- records are never reaped. Skip rows that are locked, and check the others again after locking them.
-- Collect the ids into an array once: a plain subquery may be evaluated again for each row, and delete more than the
-- limit.
-- Use the statement's time and not the clock's, so that the index scan can stop where the expired records end.
-- Wait for neither the disk nor a standby: what a crash or a failover loses of this is deleted again.
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
