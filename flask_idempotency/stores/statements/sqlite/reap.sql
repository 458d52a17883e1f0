-- Delete a few finished records that expired longer ago than the grace. Running and quarantined records are never
-- reaped.
DELETE FROM idempotency_record
 WHERE id IN (SELECT id
                FROM idempotency_record
               WHERE state = 'finished' AND expires_at < (julianday('now') - 2440587.5) * 86400.0 - :grace
               ORDER BY expires_at, id
               LIMIT :limit)
RETURNING id
