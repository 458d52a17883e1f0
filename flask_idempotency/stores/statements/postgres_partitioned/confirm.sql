-- Write something small, so that this transaction's COMMIT waits for the standby as the one in doubt should have. It
-- comes later in the log, so a standby that has it has both. Locking a row is enough.
SELECT set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
  FROM idempotency_record
 WHERE id = :id AND @days
   FOR UPDATE
