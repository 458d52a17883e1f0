-- Settle a quarantined record with an answer given by a person. No former owner may take it for its own, so the token
-- goes.
-- No row back: it is not quarantined.
UPDATE idempotency_record
   SET state = 'finished', token = NULL, status = :status, headers = :headers, body = :body, lease_until = NULL,
       reason = coalesce(reason || '; ', '') || :remark || strftime(' on %Y-%m-%d %H:%M:%S UTC', 'now'), expires_at = (julianday('now') - 2440587.5) * 86400.0 + :retention
 WHERE id = :id AND state = 'quarantined'
RETURNING id
