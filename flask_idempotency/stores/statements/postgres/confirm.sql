-- Write a little, so that this transaction's COMMIT waits for the standby as the one in doubt should have: it comes later
-- in the log, and whoever has it has both. A locked row is enough.
SELECT set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
  FROM idempotency_record
 WHERE id = :id
   FOR UPDATE
