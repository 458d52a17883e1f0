-- Delete the checkpoints of the records that are reaped next, in the same transaction.
DELETE FROM idempotency_checkpoint
 WHERE record_id IN (SELECT id
                       FROM idempotency_record
                      WHERE state = 'finished' AND expires_at < (julianday('now') - 2440587.5) * 86400.0 - :grace
                      ORDER BY expires_at, id
                      LIMIT :limit)
