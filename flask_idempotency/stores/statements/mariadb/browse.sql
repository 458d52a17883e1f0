-- Read records for an operator, newest first. A reference stands for the range of ids that begin with it.
SELECT @record
  FROM idempotency_record
 WHERE id BETWEEN :lowest AND :highest AND (:state IS NULL OR state = :state)
 ORDER BY created_at DESC
 LIMIT :limit
