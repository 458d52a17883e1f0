-- From version 4 to 5: the index of expired records is now on the time itself. It is made again with everything else
-- that is missing.
DROP INDEX IF EXISTS idempotency_record_expires_at
