-- Read one record, and say whether it has expired: if so, another may replace it.
SELECT @record, state = 'finished' AND expires_at <= UTC_TIMESTAMP(6)
  FROM idempotency_record
 WHERE id = :id
