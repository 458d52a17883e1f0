-- Let the next request resume a quarantined record, as after a lease that was ended. No row: it is not quarantined.
UPDATE idempotency_record
   SET state = 'running', token = NULL, attempt = 1, lease_until = UTC_TIMESTAMP(6),
       reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :remark,
                       DATE_FORMAT(UTC_TIMESTAMP(), ' on %%Y-%%m-%%d %%H:%%i:%%S UTC'))
 WHERE id = :id AND state = 'quarantined'
