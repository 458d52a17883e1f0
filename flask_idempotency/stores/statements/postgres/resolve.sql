-- Settle a quarantined record with an answer given by a person. No former owner may take it for its own, so the token
-- goes.
-- No row back: it is not quarantined.
UPDATE idempotency_record
   SET state = 'finished', token = NULL, status = :status, headers = :headers, body = :body, lease_until = NULL,
       reason = coalesce(reason || '; ', '') || :remark
                || to_char(clock_timestamp() AT TIME ZONE 'UTC', '" on "YYYY-MM-DD HH24:MI:SS" UTC"'), expires_at = clock_timestamp() + :retention
 WHERE id = :id AND state = 'quarantined'
RETURNING id
