-- The columns of a record, in the order in which the code reads them.
id, scope, method, path, fingerprint, state, token, attempt, created_at, lease_until,
lease_until - (julianday('now') - 2440587.5) * 86400.0, expires_at, status, headers, body, point, reason
