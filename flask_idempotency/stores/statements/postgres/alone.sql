-- Take the lock that makes workers create or upgrade the tables one after the other; PostgreSQL itself would let two
-- collide.
-- This may take long: no timeout applies unless the role sets one.
BEGIN;
SET LOCAL lock_timeout TO DEFAULT;
SET LOCAL statement_timeout TO DEFAULT;
SELECT pg_advisory_xact_lock(7216081425136404003)
