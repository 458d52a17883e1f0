-- Replace a record that no longer counts, because it expired or its lease was ended or has passed, with a finished one.
-- The old record may have been reaped meanwhile. No row back: it counts again.
INSERT INTO idempotency_record AS r
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, expires_at, status, headers, body)
SELECT :id, :scope, :method, :path, :fingerprint, 'finished', :token, 1,
       clock.now, clock.now + :retention, :status, :headers, :body
  FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS clock
 WHERE true
    ON CONFLICT (id) DO UPDATE
   SET scope = excluded.scope, method = excluded.method, path = excluded.path, fingerprint = excluded.fingerprint,
       state = excluded.state, token = excluded.token,
       attempt = CASE r.state WHEN 'finished' THEN 1 ELSE r.attempt END,
       created_at = CASE r.state WHEN 'finished' THEN excluded.created_at ELSE r.created_at END,
       point = NULL, reason = NULL, lease_until = NULL, expires_at = excluded.expires_at,
       status = excluded.status, headers = excluded.headers, body = excluded.body
 WHERE (r.state = 'finished' AND r.expires_at <= excluded.created_at)
    OR (r.state = 'running' AND r.point IS NULL AND r.fingerprint = excluded.fingerprint
        AND (r.token IS NULL OR r.lease_until <= excluded.created_at))
RETURNING id
