-- Let our own lease run from now on. No row back: the claim was lost.
-- A row that somebody holds is passed over, for whoever renews has other leases to renew as well. As a rule a phase of its
-- own holds it; then nobody takes over before its end, and its lease stands still until then.
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
