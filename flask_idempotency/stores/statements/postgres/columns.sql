-- Name the columns that the table has. No row back: it does not exist.
SELECT attname
  FROM pg_attribute
 WHERE attrelid = to_regclass('idempotency_record') AND attnum > 0 AND NOT attisdropped
