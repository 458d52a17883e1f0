-- Rewrite the headers of a stored answer in another form.
UPDATE idempotency_record
   SET headers = :headers
 WHERE id = :id
