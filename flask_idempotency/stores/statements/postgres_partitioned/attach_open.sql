-- Make the plain table the open partition of the new one. The rule on its rows has done its work: it lets the server
-- attach the table without reading it.
ALTER TABLE {table} ATTACH PARTITION {table}_open FOR VALUES IN (0);
ALTER TABLE {table}_open DROP CONSTRAINT {table}_day_check
