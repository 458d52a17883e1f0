-- Read records for a person, newest first; a reference is the range of the ids that begin with it.
SELECT @record
  FROM idempotency_record
 WHERE id BETWEEN :lowest AND :highest AND (:state IS NULL OR state = :state)
 ORDER BY created_at DESC
 LIMIT :limit
