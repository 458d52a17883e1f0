-- From version 3 to 4: a record knows how far it has come, and why it cannot go on.
ALTER TABLE idempotency_record ADD COLUMN IF NOT EXISTS point text, ADD COLUMN IF NOT EXISTS reason text
