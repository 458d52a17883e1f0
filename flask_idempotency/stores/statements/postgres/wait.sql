-- Wait for whoever holds a lock; its COMMIT, or its end, wakes us.
SELECT pg_advisory_xact_lock(:lock)
