-- Read one record, and say whether it has expired: if so, another may replace it.
SELECT @record, state = 'finished' AND expires_at <= clock_timestamp() AS has_expired
  FROM idempotency_record
 WHERE id = :id AND @days
 ORDER BY has_expired
