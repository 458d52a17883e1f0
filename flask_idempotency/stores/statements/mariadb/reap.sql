-- Delete the records that this transaction has locked for it, with their checkpoints: by their keys, so that no claim
-- of another key waits.
DELETE r, c
  FROM idempotency_record AS r LEFT JOIN idempotency_checkpoint AS c ON c.record_id = r.id
 WHERE r.id IN :ids
