-- Restore the app's own limit on lock waits.
SELECT set_config('lock_timeout', current_setting('idempotency.lock_timeout'), true)
