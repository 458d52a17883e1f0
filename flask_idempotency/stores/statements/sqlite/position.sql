-- Read where our record stands.
SELECT state, token, point
  FROM idempotency_record
 WHERE id = :id
