-- From version 3 to 4: record how far a run has come, and why it cannot continue.
ALTER TABLE idempotency_record ADD COLUMN IF NOT EXISTS point text, ADD COLUMN IF NOT EXISTS reason text
