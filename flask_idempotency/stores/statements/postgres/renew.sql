-- Restart our own lease from now. No row back: the claim was lost.
-- Skip a row that is locked, because the caller has other leases to renew. Usually a phase of its own owner holds the
-- lock; nobody takes the record over before that ends, and the lease stands still until then.
WITH free AS (
    SELECT id
      FROM idempotency_record
     WHERE id = :id AND token = :token AND state = 'running'
       FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE idempotency_record AS r
       SET lease_until = clock_timestamp() + :lease
      FROM free
     WHERE r.id = free.id
)
SELECT id
  FROM idempotency_record
 WHERE id = :id AND token = :token AND state = 'running'
