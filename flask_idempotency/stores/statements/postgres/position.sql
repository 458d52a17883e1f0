-- Read how our record stands. On PostgreSQL after whoever holds it: a COMMIT in doubt has been made or not, then.
SELECT state, token, point
  FROM idempotency_record
 WHERE id = :id
   FOR UPDATE
