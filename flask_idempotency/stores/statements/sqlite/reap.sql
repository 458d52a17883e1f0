-- Delete a few finished records that expired more than the grace ago. A running or quarantined record is never reaped.
DELETE FROM idempotency_record
 WHERE id IN (SELECT id
                FROM idempotency_record
               WHERE state = 'finished' AND expires_at < (julianday('now') - 2440587.5) * 86400.0 - :grace
               ORDER BY expires_at, id
               LIMIT :limit)
RETURNING id
