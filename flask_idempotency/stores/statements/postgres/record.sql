-- The columns of a record, in the order in which the code reads them.
id, scope, method, path, fingerprint, state, token, attempt, created_at, lease_until,
lease_until - clock_timestamp() AS lease_left, expires_at, status, headers, body, point, reason
