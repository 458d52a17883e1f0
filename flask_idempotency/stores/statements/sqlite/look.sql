-- Read one record, and say whether it has expired: if so, another may replace it.
SELECT @record, state = 'finished' AND expires_at <= (julianday('now') - 2440587.5) * 86400.0
  FROM idempotency_record
 WHERE id = :id
