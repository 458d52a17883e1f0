-- Begin to make or upgrade the tables, one at a time: PostgreSQL does not wait for whoever makes the same.
-- It takes as long as it takes, unless the role has bounds of its own.
BEGIN;
SET LOCAL lock_timeout TO DEFAULT;
SET LOCAL statement_timeout TO DEFAULT;
SELECT pg_advisory_xact_lock(7216081425136404003)
