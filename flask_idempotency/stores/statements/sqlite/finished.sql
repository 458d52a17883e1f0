-- Say with what status a record has finished, expired or not.
SELECT status
  FROM idempotency_record
 WHERE id = :id AND state = 'finished'
