-- Say how many bytes both tables take on disk, with their indexes, by the server's statistics.
SELECT SUM(data_length + index_length)
  FROM information_schema.tables
 WHERE table_schema = DATABASE() AND table_name IN ('idempotency_record', 'idempotency_checkpoint')
