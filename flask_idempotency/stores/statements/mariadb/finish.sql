-- Turn the row that has been our lock into the finished record; work and answer are committed together, or neither.
-- No row: it is not ours any more.
UPDATE idempotency_record
   SET state = 'finished', reason = NULL, status = :status, headers = :headers, body = :body,
       expires_at = UTC_TIMESTAMP(6) + INTERVAL :retention MICROSECOND
 WHERE id = :id AND token = :token AND state = 'quarantined'
