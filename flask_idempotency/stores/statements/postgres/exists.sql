-- Say whether there is a record at all, live or not: most requests are first ones, and need not know more.
SELECT true
  FROM idempotency_record
 WHERE id = :id
