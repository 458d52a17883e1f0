-- End the lease of a running record, whoever holds it, so that the next request runs at once. Nothing is deleted.
-- No row back: it is not running.
UPDATE idempotency_record
   SET token = NULL, lease_until = clock_timestamp(),
       reason = coalesce(reason || '; ', '') || :remark
                || to_char(clock_timestamp() AT TIME ZONE 'UTC', '" on "YYYY-MM-DD HH24:MI:SS" UTC"')
 WHERE id = :id AND state = 'running'
RETURNING id
