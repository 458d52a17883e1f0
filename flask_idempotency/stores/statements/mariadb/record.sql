-- The columns of a record, in the order in which the code reads them.
id, scope, method, path, fingerprint, state, token, attempt, created_at, lease_until,
TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until), expires_at, status, headers, body, point, reason
