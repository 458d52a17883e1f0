-- From version 3 to 4: record how far a run has come, and why it cannot continue.
ALTER TABLE idempotency_record ADD COLUMN point TEXT;
ALTER TABLE idempotency_record ADD COLUMN reason TEXT
