-- Give what adds to a plain table the column by which it will be partitioned, and the rule that all its rows are open
-- ones, unless it has them. Neither reads a row: what is there counts as having the column's default.
SELECT unnest(ARRAY['ALTER TABLE {table} ADD COLUMN IF NOT EXISTS day smallint NOT NULL DEFAULT 0',
                    'ALTER TABLE {table} ADD CONSTRAINT {table}_day_check CHECK (day = 0) NOT VALID'])
  FROM pg_class
 WHERE oid = to_regclass('{table}') AND relkind = 'r'
   AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = pg_class.oid AND conname = '{table}_day_check')
