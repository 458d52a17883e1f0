-- Blank the answer of a finished record, expired or not: the headers given are those of a body that was not kept.
-- No row: that was done before, or it is another record by now.
UPDATE idempotency_record
   SET reason = CONCAT(COALESCE(CONCAT(reason, '; '), ''), :remark,
                       DATE_FORMAT(UTC_TIMESTAMP(), ' on %%Y-%%m-%%d %%H:%%i:%%S UTC')),
       headers = :headers, body = NULL
 WHERE id = :id AND state = 'finished' AND status = :status
   AND (body IS NOT NULL OR headers <> :headers
        OR EXISTS (SELECT 1 FROM idempotency_checkpoint WHERE record_id = :id AND result IS NOT NULL))
