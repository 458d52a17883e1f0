-- Read one record. An expired record counts as absent, whether its partition was dropped or not.
SELECT @record
  FROM idempotency_record
 WHERE id = :id AND @days AND (state <> 'finished' OR expires_at > clock_timestamp())
