-- Limit the lock waits that follow, and save the app's own limit.
SELECT set_config('idempotency.lock_timeout', current_setting('lock_timeout'), true),
       set_config('lock_timeout', :patience, true)
