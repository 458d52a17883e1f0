-- Note that an effect did not happen, so that it is sent again with a new key. Only for a quarantined record.
UPDATE idempotency_checkpoint
   SET state = 'void', generation = generation + 1, result = :proof, at = UTC_TIMESTAMP(6)
 WHERE record_id = :id AND name = :name AND kind = 'effect' AND state = 'sent'
   AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND state = 'quarantined')
