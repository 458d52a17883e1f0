-- Add a finished record to the work that made its answer; both are committed, or neither. The primary key decides
-- between rivals.
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, expires_at, status, headers, body)
SELECT :id, :scope, :method, :path, :fingerprint, 'finished', :token, 1,
       clock.now, clock.now + :retention, :status, :headers, :body
  FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS clock
RETURNING id
