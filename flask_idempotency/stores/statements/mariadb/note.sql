-- Note on our own record why its owner cannot continue. If nobody else can either, this is why it is quarantined.
-- If the next owner gives the same reason, it is not repeated.
UPDATE idempotency_record
   SET reason = IF(RIGHT(reason, CHAR_LENGTH(:reason)) = :reason, reason,
                   CONCAT(COALESCE(CONCAT(reason, '; '), ''), :reason))
 WHERE id = :id AND token = :token AND state = 'running'
