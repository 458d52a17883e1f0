-- Read one record. An expired record counts as absent, whether it was reaped or not.
SELECT @record
  FROM idempotency_record
 WHERE id = :id AND (state <> 'finished' OR expires_at > UTC_TIMESTAMP(6))
