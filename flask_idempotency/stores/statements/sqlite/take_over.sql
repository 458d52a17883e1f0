-- Give a record to a new owner: an expired one starts again; a running one of the same request is taken over if its
-- lease was ended or has passed.
-- No row back: another request was faster, or the record has been taken over too often.
-- Only leases that ran out count as takeovers; a lease ended by its owner leaves no token.
UPDATE idempotency_record
   SET method = :method, path = :path, fingerprint = :fingerprint, state = 'running', token = :token,
       lease_until = clock.now + :lease,
       attempt = CASE state WHEN 'finished' THEN 1 ELSE attempt + (token IS NOT NULL) END,
       created_at = CASE state WHEN 'finished' THEN clock.now ELSE created_at END,
       point = CASE state WHEN 'finished' THEN NULL ELSE point END,
       reason = CASE state WHEN 'finished' THEN NULL ELSE reason END,
       expires_at = NULL, status = NULL, headers = NULL, body = NULL
  FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS clock
 WHERE id = :id
   AND ((state = 'finished' AND expires_at <= clock.now)
        OR (state = 'running' AND fingerprint = :fingerprint
            AND (token IS NULL OR (lease_until <= clock.now AND attempt <= :takeovers))))
RETURNING attempt, point
