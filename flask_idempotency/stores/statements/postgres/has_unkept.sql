-- Say whether anything was written after our savepoint: only then does it have a transaction id of its own.
SELECT count(*) > 1
  FROM pg_locks
 WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock'
