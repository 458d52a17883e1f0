-- Try for the right to run, as long as the transaction lasts: first on the same request, then on the record.
-- Refused on the first (null): the same request is under way. Refused on the second (false): another one with this key.
-- A worker that is stopped in the middle must not hold them for ever, unless the role has a bound of its own.
-- Where the whole transaction sees the same snapshot, that is from before the locks, and what it shows may be old.
-- Whoever may not write here is told before its view has run.
-- What the app has written before is its own to undo; only who has written has a number.
-- The wait for the table, which the next statement reads, is bounded; what the app had set is noted for afterwards.
SELECT CASE WHEN pg_try_advisory_xact_lock(:request::bigint) THEN pg_try_advisory_xact_lock(:record::bigint) END,
       CASE current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle, true) IS NULL END,
       current_setting('transaction_isolation') IN ('repeatable read', 'serializable'),
       pg_current_xact_id_if_assigned() IS NOT NULL,
       current_setting('transaction_read_only') = 'off' AND has_table_privilege('idempotency_record', 'INSERT'),
       set_config('idempotency.lock_timeout', current_setting('lock_timeout'), true),
       set_config('lock_timeout', :wait, true)
