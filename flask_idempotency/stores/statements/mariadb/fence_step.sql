-- Advance our own record by one point, as the first statement of a phase's transaction. No row: the claim was lost, or
-- the record is at another point.
-- The lease stands still during a phase, because nobody could renew it: while the transaction is open, the column holds
-- the time that was left, counted from 1970, instead of the lease's end.
SET STATEMENT innodb_lock_wait_timeout = 2 FOR
UPDATE idempotency_record
   SET point = :point,
       lease_until = TIMESTAMP('1970-01-01')
                     + INTERVAL TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until) MICROSECOND
 WHERE id = :id AND token = :token AND state = 'running' AND point <=> :previous
