-- Read one record after waiting for whoever has locked it: by then a COMMIT in doubt has happened or failed.
SELECT @record
  FROM idempotency_record
 WHERE id = :id AND (state <> 'finished' OR expires_at > UTC_TIMESTAMP(6))
  LOCK IN SHARE MODE
