-- Delete the checkpoints of the records that the next statement of this transaction reaps.
DELETE FROM idempotency_checkpoint
 WHERE record_id IN (SELECT id
                       FROM idempotency_record
                      WHERE state = 'finished' AND expires_at < (julianday('now') - 2440587.5) * 86400.0 - :grace
                      ORDER BY expires_at, id
                      LIMIT :limit)
