-- Delete a few finished records that expired more than the grace ago. A running or quarantined record is never reaped.
-- Rows that somebody holds are passed over; the rest are looked at again once they are locked.
DELETE FROM idempotency_record
 WHERE id IN (SELECT id
                FROM idempotency_record
               WHERE state = 'finished' AND expires_at < clock_timestamp() - :grace
               ORDER BY expires_at
               LIMIT :limit
                 FOR UPDATE SKIP LOCKED)
RETURNING id
