-- Read records for an operator, newest first. A reference stands for the range of ids that begin with it.
-- An id that was used again after its expiry is there twice until the older one's partition is dropped.
SELECT @record
  FROM idempotency_record
 WHERE id BETWEEN :lowest AND :highest AND (:state::text IS NULL OR state = :state)
 ORDER BY created_at DESC
 LIMIT :limit
