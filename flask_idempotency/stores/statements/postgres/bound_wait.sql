-- Bound the waits that follow, and note what the app had set.
SELECT set_config('idempotency.lock_timeout', current_setting('lock_timeout'), true),
       set_config('lock_timeout', :patience, true)
