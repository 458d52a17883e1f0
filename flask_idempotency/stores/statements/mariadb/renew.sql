-- Restart our own lease from now. No row: the claim was lost.
-- Do not wait for a row that is locked, because the caller has other leases to renew. Usually a phase of its own owner
-- holds the lock; nobody takes the record over before that ends, and the lease stands still until then.
SET STATEMENT innodb_lock_wait_timeout = 0 FOR
UPDATE idempotency_record
   SET lease_until = UTC_TIMESTAMP(6) + INTERVAL :lease MICROSECOND
 WHERE id = :id AND token = :token AND state = 'running'
