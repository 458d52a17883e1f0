-- Say whether something was written behind our savepoint: only then has it a number of its own, beside the transaction's.
SELECT count(*) > 1
  FROM pg_locks
 WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock'
