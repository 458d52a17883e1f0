-- Begin what may take long and keeps nobody waiting.
BEGIN;
SET LOCAL lock_timeout TO DEFAULT;
SET LOCAL statement_timeout TO DEFAULT
