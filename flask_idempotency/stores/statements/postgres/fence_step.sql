-- Move our own record on by one point, first in the transaction of a phase. No row back: the claim was lost, or it does not
-- stand where it stood. The waits for this row and its table are bounded by bound_wait before; whatever the step waits for
-- later is as the app had set.
-- A worker that is stopped in the middle must not hold its locks for ever, unless the role has a bound of its own.
UPDATE idempotency_record
   SET point = :point
 WHERE id = :id AND token = :token AND state = 'running' AND point IS NOT DISTINCT FROM :previous
RETURNING id, set_config('lock_timeout', current_setting('idempotency.lock_timeout', true), true),
          CASE current_setting('idle_in_transaction_session_timeout')
          WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle, true) END
