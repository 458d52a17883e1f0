-- Delete the stored requests of the abandoned records that the next statement of this transaction reaps.
DELETE FROM idempotency_checkpoint
 WHERE record_id IN (SELECT id
                      FROM idempotency_record
                     WHERE state = 'running' AND expires_at IS NULL AND (point IS NULL OR point = :request)
                       AND created_at < (julianday('now') - 2440587.5) * 86400.0 - :age
                       AND lease_until < (julianday('now') - 2440587.5) * 86400.0 - :age
                     ORDER BY created_at, id
                     LIMIT :limit)
