-- Read the records of a caller for an operator, newest first.
SELECT @record
  FROM idempotency_record
 WHERE scope = :scope AND id BETWEEN :lowest AND :highest AND (:state IS NULL OR state = :state)
 ORDER BY created_at DESC
 LIMIT :limit
