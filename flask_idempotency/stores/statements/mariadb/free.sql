-- End the lease of a running record, whoever holds it, so that the next request runs at once. Nothing is deleted.
-- No row: it is not running.
UPDATE idempotency_record
   SET token = NULL, lease_until = UTC_TIMESTAMP(6),
       reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :remark,
                       DATE_FORMAT(UTC_TIMESTAMP(), ' on %%Y-%%m-%%d %%H:%%i:%%S UTC'))
 WHERE id = :id AND state = 'running'
