-- As lock, in a transaction that has a past: it was open before, or has waited for another.
-- Where the whole of it sees the same snapshot, that is from before the locks, and what it shows may be old.
-- What the app has written before is its own to undo; only who has written has a number.
SELECT CASE WHEN pg_try_advisory_xact_lock(:request::bigint) THEN pg_try_advisory_xact_lock(:record::bigint) END,
       CASE current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle, true) IS NULL END,
       current_setting('transaction_isolation') IN ('repeatable read', 'serializable'),
       txid_current_if_assigned() IS NOT NULL
