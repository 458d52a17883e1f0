-- Read the settings that cost or risk something, and the time.
SELECT UTC_TIMESTAMP(6), @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog,
       @@global.tx_isolation
