-- Delete the row that has been our lock, so that the work is committed without a record.
DELETE FROM idempotency_record
 WHERE id = :id AND token = :token AND state = 'quarantined'
