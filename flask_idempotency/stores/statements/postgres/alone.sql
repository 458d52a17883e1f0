-- Begin to make or upgrade the tables, one at a time: PostgreSQL does not wait for whoever makes the same.
BEGIN;
SELECT pg_advisory_xact_lock(7216081425136404003)
