-- Take a running record of the same request over, if its lease was ended or has passed.
-- No row back: another request was faster, or the record has been taken over too often.
-- Only leases that ran out count as takeovers; a lease ended by its owner leaves no token.
UPDATE idempotency_record_open
   SET method = :method, path = :path, token = :token, lease_until = clock_timestamp() + :lease,
       attempt = attempt + (token IS NOT NULL)::integer
 WHERE id = :id AND state = 'running' AND fingerprint = :fingerprint
   AND (token IS NULL OR (lease_until <= clock_timestamp() AND attempt <= :takeovers))
RETURNING attempt, point,
          set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
