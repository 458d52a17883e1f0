-- Give a record to a new owner: an expired one starts again; a running one of the same request is taken over if its
-- lease was ended or has passed.
-- No row: another request was faster, or the record has been taken over too often.
-- Only leases that ran out count as takeovers; a lease ended by its owner leaves no token. Each assignment sees the
-- ones before it, so the state and the token come last.
UPDATE idempotency_record
   SET attempt = IF(state = 'finished', 1, attempt + (token IS NOT NULL)),
       created_at = IF(state = 'finished', UTC_TIMESTAMP(6), created_at),
       point = IF(state = 'finished', NULL, point), reason = IF(state = 'finished', NULL, reason),
       method = :method, path = :path, fingerprint = :fingerprint, state = 'running', token = :token,
       lease_until = UTC_TIMESTAMP(6) + INTERVAL :lease MICROSECOND,
       expires_at = NULL, status = NULL, headers = NULL, body = NULL
 WHERE id = :id
   AND ((state = 'finished' AND expires_at <= UTC_TIMESTAMP(6))
        OR (state = 'running' AND fingerprint = :fingerprint
            AND (token IS NULL OR (lease_until <= UTC_TIMESTAMP(6) AND attempt <= :takeovers))));
SELECT attempt, point
  FROM idempotency_record
 WHERE id = :id AND token = :token AND state = 'running'
