-- End the lease of a running record, whoever holds it, so that the next request runs at once. Nothing is deleted.
-- No row back: it is not running.
UPDATE idempotency_record
   SET token = NULL, lease_until = (julianday('now') - 2440587.5) * 86400.0,
       reason = coalesce(reason || '; ', '') || :remark || strftime(' on %Y-%m-%d %H:%M:%S UTC', 'now')
 WHERE id = :id AND state = 'running'
RETURNING id
