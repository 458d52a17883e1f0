-- From version 3 to 4: a record knows how far it has come, and why it cannot go on.
ALTER TABLE idempotency_record ADD COLUMN point TEXT;
ALTER TABLE idempotency_record ADD COLUMN reason TEXT
