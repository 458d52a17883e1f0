-- Wait for whoever holds a lock; its COMMIT or rollback wakes us.
SELECT pg_advisory_xact_lock(:lock)
