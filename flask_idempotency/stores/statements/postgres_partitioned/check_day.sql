-- Give what checks that rule for the rows that are there, while everybody else goes on: then the server attaches the
-- table without reading it under a lock.
SELECT 'ALTER TABLE {table} VALIDATE CONSTRAINT {table}_day_check'
  FROM pg_constraint
 WHERE conrelid = to_regclass('{table}') AND conname = '{table}_day_check' AND NOT convalidated
