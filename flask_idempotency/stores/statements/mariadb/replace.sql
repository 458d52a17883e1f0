-- Take the right to run as enter does, in the place of a record that no longer counts, because it expired or its lease
-- was ended or has passed. No row: it counts again, or is gone.
SET STATEMENT innodb_lock_wait_timeout = :wait, max_statement_time = :longest FOR
UPDATE idempotency_record
   SET attempt = IF(state = 'finished', 1, attempt),
       created_at = IF(state = 'finished', UTC_TIMESTAMP(6), created_at),
       scope = :scope, method = :method, path = :path, fingerprint = :fingerprint, state = 'quarantined',
       token = :token, point = NULL, reason = :reason, lease_until = NULL, expires_at = NULL,
       status = NULL, headers = NULL, body = NULL
 WHERE id = :id
   AND ((state = 'finished' AND expires_at <= UTC_TIMESTAMP(6))
        OR (state = 'running' AND point IS NULL AND fingerprint = :fingerprint
            AND (token IS NULL OR lease_until <= UTC_TIMESTAMP(6))))
