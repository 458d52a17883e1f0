-- From version 4 to 5: the index of what has expired is on the time itself; it is made anew, with all that is missing.
DROP INDEX IF EXISTS idempotency_record_expires_at
