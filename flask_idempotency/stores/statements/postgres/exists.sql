-- Say whether there is a record at all, live or not: most requests are first ones, and need not know more.
-- From here on statements wait as long as the app had set; whatever reads the table later has its lock already.
SELECT EXISTS (SELECT FROM idempotency_record WHERE id = :id),
       set_config('lock_timeout', current_setting('idempotency.lock_timeout'), true)
