-- Let the next request resume a quarantined record, as after a lease that was ended. No row back: it is not
-- quarantined.
UPDATE idempotency_record
   SET state = 'running', token = NULL, attempt = 1, lease_until = clock_timestamp(), reason = coalesce(reason || '; ', '') || :remark
                || to_char(clock_timestamp() AT TIME ZONE 'UTC', '" on "YYYY-MM-DD HH24:MI:SS" UTC"')
 WHERE id = :id AND state = 'quarantined'
RETURNING id
