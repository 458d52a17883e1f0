-- Add a phase's checkpoint to its work; both are committed, or neither. It fails, and the work with it, unless this
-- same transaction has moved the record on to it: a checkpoint must have a record.
-- The lease stands still during a phase, because nobody could renew it. The new end is written only if it matters
-- before the next renewal: most phases are short, and each write makes a new version of the row.
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
