-- Begin to change tables, one process after the other. Claims wait behind us for as long as we wait for a table.
BEGIN;
SET LOCAL lock_timeout = '400ms';
SET LOCAL statement_timeout TO DEFAULT;
SELECT pg_advisory_xact_lock(7216081425136404003)
