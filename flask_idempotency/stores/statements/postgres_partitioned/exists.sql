-- Say whether there is a record at all, live or not: most requests are first ones and need to know no more.
-- After this statement the app's own lock limit applies again; later statements that read the table already have its
-- lock.
SELECT EXISTS (SELECT FROM idempotency_record WHERE id = :id AND @days),
       set_config('lock_timeout', current_setting('idempotency.lock_timeout'), true)
