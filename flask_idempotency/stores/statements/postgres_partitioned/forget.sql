-- Blank the answer of a finished record, expired or not: the headers given are those of a body that was not kept.
-- An id that was used again after its expiry is there twice until the older one's partition is dropped.
-- No row back: that was done before, or it is another record by now.
UPDATE idempotency_record AS r
   SET headers = :headers, body = NULL,
       reason = coalesce(reason || '; ', '') || :remark
                || to_char(clock_timestamp() AT TIME ZONE 'UTC', '" on "YYYY-MM-DD HH24:MI:SS" UTC"')
 WHERE id = :id AND state = 'finished' AND status = :status
   AND (body IS NOT NULL OR headers <> :headers
        OR EXISTS (SELECT FROM idempotency_checkpoint AS c
                    WHERE c.record_id = :id AND c.day = r.day AND c.result IS NOT NULL))
RETURNING id
