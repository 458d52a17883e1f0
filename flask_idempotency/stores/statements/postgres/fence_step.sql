-- Advance our own record by one point, as the first statement of a phase's transaction. No row back: the claim was
-- lost, or the record is at another point.
-- bound_wait has limited the waits for this row and its table; the app's own limit applies to later waits of the step.
-- If the role has no limit of its own, set one here, so that a worker stopped in the middle does not hold its locks for
-- ever.
UPDATE idempotency_record
   SET point = :point
 WHERE id = :id AND token = :token AND state = 'running' AND point IS NOT DISTINCT FROM :previous
RETURNING id, set_config('lock_timeout', current_setting('idempotency.lock_timeout', true), true),
          CASE current_setting('idle_in_transaction_session_timeout')
          WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle, true) END
