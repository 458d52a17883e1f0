-- Say with what status a record has finished, expired or not.
-- An id that was used again after its expiry is there twice.
SELECT status
  FROM idempotency_record
 WHERE id = :id AND state = 'finished'
