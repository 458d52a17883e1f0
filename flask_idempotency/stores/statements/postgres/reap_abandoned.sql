-- Delete a few running records that nobody has held for that long and that have passed no phase or effect, with their
-- stored requests. Skip rows that are locked, and check the others again after locking them.
-- Wait for neither the disk nor a standby: what a crash or a failover loses of this is deleted again.
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
