-- Check that rule for the rows that are there, while everybody else goes on: the server then attaches the table without
-- reading it under a lock.
ALTER TABLE {table} VALIDATE CONSTRAINT {table}_day_check
