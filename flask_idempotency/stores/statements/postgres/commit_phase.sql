-- Add the checkpoint of a phase to the work that it stands for; both are committed, or neither. It fails, and the work
-- with it, unless the record has been moved on to it in this very transaction: a checkpoint must have a record.
-- The lease of a phase stands still, for nobody could renew it. That is written down only if it makes a difference before
-- the next renewal: a phase is short as a rule, and a row is written anew for it.
WITH prolonged AS (
    UPDATE idempotency_record
       SET lease_until = lease_until + (clock_timestamp() - transaction_timestamp())
     WHERE id = :id AND token = :token AND state = 'running' AND point = :point
       AND lease_until - clock_timestamp() < clock_timestamp() - transaction_timestamp()
)
INSERT INTO idempotency_checkpoint (record_id, name, position, kind, state, generation, result, at)
VALUES ((SELECT id FROM idempotency_record
          WHERE id = :id AND token = :token AND state = 'running' AND point = :point
            AND xmin = pg_current_xact_id()::xid),
        :name, :position, :kind, :progress, :generation, :result, clock_timestamp())
RETURNING set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
