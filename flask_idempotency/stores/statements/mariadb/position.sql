-- Read where our record stands, after waiting for whoever has locked it: by then a COMMIT in doubt has happened or
-- failed.
SELECT state, token, point
  FROM idempotency_record
 WHERE id = :id
   FOR UPDATE
