-- Note on our own record why its owner cannot continue. If nobody else can either, this is why it is quarantined.
-- If the next owner gives the same reason, it is not repeated.
UPDATE idempotency_record
   SET reason = CASE WHEN right(reason, length(:reason::text)) = :reason::text THEN reason
                     ELSE coalesce(reason || '; ', '') || :reason::text END
 WHERE id = :id AND token = :token AND state = 'running'
RETURNING id
