-- Let the statements that follow wait as long as the app had set.
SELECT set_config('lock_timeout', current_setting('idempotency.lock_timeout'), true)
