-- Replace a record that no longer counts, because it expired or its lease was ended or has passed, with a finished one.
-- No row back: it counts again.
UPDATE idempotency_record
   SET scope = :scope, method = :method, path = :path, fingerprint = :fingerprint, state = 'finished', token = :token,
       attempt = CASE state WHEN 'finished' THEN 1 ELSE attempt END,
       created_at = CASE state WHEN 'finished' THEN clock.now ELSE created_at END,
       point = NULL, reason = NULL, lease_until = NULL, expires_at = clock.now + :retention,
       status = :status, headers = :headers, body = :body
  FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS clock
 WHERE id = :id
   AND ((state = 'finished' AND expires_at <= clock.now)
        OR (state = 'running' AND point IS NULL AND fingerprint = :fingerprint
            AND (token IS NULL OR lease_until <= clock.now)))
RETURNING id
