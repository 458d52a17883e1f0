-- Say how a record has finished, expired or not: its status, and the headers of an answer whose body was not kept.
SELECT status, CASE WHEN body IS NULL THEN headers END
  FROM idempotency_record
 WHERE id = :id AND state = 'finished'
