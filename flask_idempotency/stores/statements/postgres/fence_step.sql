-- Move our own record on by one point, first in the transaction of a phase. No row back: the claim was lost, or it does not
-- stand where it stood. The wait for this row is bounded; whatever the step waits for later is as the app had set. What that
-- was is noted first, and once: conditions are asked in an order of the planner's own, but those of a CASE are not; and again
-- if the row has changed meanwhile.
-- A worker that is stopped in the middle must not hold its locks for ever, unless the role has a bound of its own.
UPDATE idempotency_record
   SET point = :point
 WHERE id = :id AND token = :token AND state = 'running' AND point IS NOT DISTINCT FROM :previous
   AND CASE WHEN coalesce(nullif(current_setting('idempotency.lock_timeout', true), ''),
                          set_config('idempotency.lock_timeout', current_setting('lock_timeout'), true)) IS NOT NULL
            THEN set_config('lock_timeout', '2s', true) END IS NOT NULL
RETURNING id, set_config('lock_timeout', current_setting('idempotency.lock_timeout'), true),
          CASE current_setting('idle_in_transaction_session_timeout')
          WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle, true) END
