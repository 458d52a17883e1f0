-- Give a record to a new owner: an expired one starts again; a running one of the same request is taken over if its
-- lease was ended or has passed.
-- No row back: another request was faster, or the record has been taken over too often.
-- Only leases that ran out count as takeovers; a lease ended by its owner leaves no token.
UPDATE idempotency_record AS r
   SET method = :method, path = :path, fingerprint = :fingerprint, state = 'running', token = :token,
       lease_until = clock_timestamp() + :lease,
       attempt = CASE r.state WHEN 'finished' THEN 1 ELSE r.attempt + (r.token IS NOT NULL)::integer END,
       created_at = CASE r.state WHEN 'finished' THEN clock_timestamp() ELSE r.created_at END,
       point = CASE r.state WHEN 'finished' THEN NULL ELSE r.point END,
       reason = CASE r.state WHEN 'finished' THEN NULL ELSE r.reason END,
       expires_at = NULL, status = NULL, headers = NULL, body = NULL
 WHERE r.id = :id
   AND ((r.state = 'finished' AND r.expires_at <= clock_timestamp())
        OR (r.state = 'running' AND r.fingerprint = :fingerprint
            AND (r.token IS NULL OR (r.lease_until <= clock_timestamp() AND r.attempt <= :takeovers))))
RETURNING r.attempt, r.point,
          set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
