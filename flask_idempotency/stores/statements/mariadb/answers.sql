-- Read every stored answer, to rewrite it in another form.
SELECT id, status, headers, body
  FROM idempotency_record
 WHERE state = 'finished' AND headers IS NOT NULL
