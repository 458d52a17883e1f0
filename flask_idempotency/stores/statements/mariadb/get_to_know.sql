-- Say what server this is, whether it takes writes, and when it flushes a COMMIT to its disk.
SELECT VERSION(), @@global.read_only, @@global.innodb_flush_log_at_trx_commit
