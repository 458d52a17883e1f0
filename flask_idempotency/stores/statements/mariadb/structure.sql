-- Say what the database has of our tables: columns and indexes. No row: there is no table.
SELECT table_name, 'column', column_name
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name IN ('idempotency_record', 'idempotency_checkpoint')
 UNION ALL
SELECT DISTINCT table_name, 'index', index_name
  FROM information_schema.statistics
 WHERE table_schema = DATABASE() AND table_name IN ('idempotency_record', 'idempotency_checkpoint')
