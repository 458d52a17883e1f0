-- Let the next request resume a quarantined record, as after a lease that was ended. No row back: it is not
-- quarantined.
UPDATE idempotency_record
   SET state = 'running', token = NULL, attempt = 1, lease_until = (julianday('now') - 2440587.5) * 86400.0, reason = coalesce(reason || '; ', '') || :remark || strftime(' on %Y-%m-%d %H:%M:%S UTC', 'now')
 WHERE id = :id AND state = 'quarantined'
RETURNING id
