-- Name the columns that the table has. No row back: it does not exist.
SELECT name
  FROM pragma_table_info('idempotency_record')
