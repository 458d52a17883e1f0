-- Blank the answer of a finished record, expired or not: the headers given are those of a body that was not kept.
-- No row back: that was done before, or it is another record by now.
UPDATE idempotency_record
   SET headers = :headers, body = NULL,
       reason = coalesce(reason || '; ', '') || :remark || strftime(' on %Y-%m-%d %H:%M:%S UTC', 'now')
 WHERE id = :id AND state = 'finished' AND status = :status
   AND (body IS NOT NULL OR headers <> :headers
        OR EXISTS (SELECT 1 FROM idempotency_checkpoint WHERE record_id = :id AND result IS NOT NULL))
RETURNING id
