-- Begin an expired record again, in the open partition, as the caller holds the lock on its id; its checkpoints go.
-- No row back: another request was faster.
WITH gone AS (
    DELETE FROM idempotency_record
     WHERE id = :id AND @days AND state = 'finished' AND expires_at <= clock_timestamp()
    RETURNING id, day, scope
), gone_with_it AS (
    DELETE FROM idempotency_checkpoint AS c
     USING gone
     WHERE c.record_id = gone.id AND c.day = gone.day
    RETURNING c.day
)
INSERT INTO idempotency_record_open
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, lease_until)
SELECT id, scope, :method, :path, :fingerprint, 'running', :token, 1, clock_timestamp(), clock_timestamp() + :lease
  FROM gone
 WHERE (SELECT count(*) FROM gone_with_it) >= 0
 LIMIT 1
RETURNING attempt, point,
          set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
