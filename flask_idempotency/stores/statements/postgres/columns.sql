-- Name the columns that the tables have. No row back: there is no table.
SELECT attrelid::regclass::text, attname::text
  FROM pg_attribute
 WHERE attrelid IN (to_regclass('idempotency_record'), to_regclass('idempotency_checkpoint'))
   AND attnum > 0 AND NOT attisdropped
