-- Settle a quarantined record with an answer given by a person. No former owner may take it for its own, so the token
-- goes. No row: it is not quarantined.
UPDATE idempotency_record
   SET state = 'finished', token = NULL, status = :status, headers = :headers, body = :body, lease_until = NULL,
       reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :remark,
                       DATE_FORMAT(UTC_TIMESTAMP(), ' on %%Y-%%m-%%d %%H:%%i:%%S UTC')),
       expires_at = UTC_TIMESTAMP(6) + INTERVAL :retention MICROSECOND
 WHERE id = :id AND state = 'quarantined'
