-- Move the plain table out of the way: it becomes the open partition.
ALTER TABLE {table} RENAME TO {table}_open
