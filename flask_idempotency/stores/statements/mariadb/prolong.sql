-- Restart the lease at the end of a phase, with what was left of it at the beginning.
UPDATE idempotency_record
   SET lease_until = UTC_TIMESTAMP(6)
                     + INTERVAL TIMESTAMPDIFF(MICROSECOND, TIMESTAMP('1970-01-01'), lease_until) MICROSECOND
 WHERE id = :id AND token = :token AND state = 'running' AND point = :point
