-- Give a plain table the column by which it will be partitioned, and the rule that all of its rows are open ones.
-- Neither reads a row: what is there counts as having the column's default.
ALTER TABLE {table}
      ADD COLUMN IF NOT EXISTS day smallint NOT NULL DEFAULT 0,
      DROP CONSTRAINT IF EXISTS {table}_day_check;
ALTER TABLE {table} ADD CONSTRAINT {table}_day_check CHECK (day = 0) NOT VALID
