-- Read the next finished records of a caller, in the order of their ids, expired or not.
SELECT id
  FROM idempotency_record
 WHERE scope = :scope AND state = 'finished' AND id > :after
 ORDER BY id
 LIMIT :limit
