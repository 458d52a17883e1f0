-- Read one record, and say whether it has expired: then another takes its place.
SELECT @record, state = 'finished' AND expires_at <= clock_timestamp()
  FROM idempotency_record
 WHERE id = :id
