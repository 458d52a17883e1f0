-- Try to get the right to run for as long as the transaction lasts: lock first the request, then the record.
-- First lock refused (null): the same request is in flight. Second lock refused (false): another request with this key
-- is.
-- If the role has no limit of its own, set one here, so that a worker stopped in the middle does not hold the locks for
-- ever.
-- If one snapshot serves the whole transaction, it was taken before the locks, so what it shows may be out of date.
-- A role that may not write here is told so before its view runs.
-- What the app has written before is the app's to undo; only a transaction that has written has an id.
-- Limit the wait for the table, which the next statement reads, and save the app's own limit.
SELECT CASE WHEN pg_try_advisory_xact_lock(:request::bigint) THEN pg_try_advisory_xact_lock(:record::bigint) END,
       CASE current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle, true) IS NULL END,
       current_setting('transaction_isolation') IN ('repeatable read', 'serializable'),
       pg_current_xact_id_if_assigned() IS NOT NULL,
       current_setting('transaction_read_only') = 'off' AND has_table_privilege('idempotency_record', 'INSERT'),
       set_config('idempotency.lock_timeout', current_setting('lock_timeout'), true),
       set_config('lock_timeout', :wait, true)
