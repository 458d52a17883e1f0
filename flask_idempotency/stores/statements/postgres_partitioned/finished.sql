-- Say how a record has finished, expired or not: its status, and the headers of an answer whose body was not kept.
-- An id that was used again after its expiry is there twice.
SELECT status, CASE WHEN body IS NULL THEN headers END
  FROM idempotency_record
 WHERE id = :id AND state = 'finished'
