-- Say on our own record why its owner cannot go on. If nobody else can either, that is why it is quarantined.
-- The next owner may say the same, and it is said once.
UPDATE idempotency_record
   SET reason = CASE WHEN right(reason, length(:reason::text)) = :reason::text THEN reason
                     ELSE coalesce(reason || '; ', '') || :reason::text END
 WHERE id = :id AND token = :token AND state = 'running'
RETURNING id
