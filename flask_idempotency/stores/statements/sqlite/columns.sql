-- Name the columns that the tables have. No row back: there is no table.
SELECT 'idempotency_record', name
  FROM pragma_table_info('idempotency_record')
 UNION ALL
SELECT 'idempotency_checkpoint', name
  FROM pragma_table_info('idempotency_checkpoint')
