-- From version 1 or 2 to 3: shorten fingerprints, without changing the bytes that stay, and make the attempt a smaller
-- integer.
ALTER TABLE idempotency_record
      DROP CONSTRAINT idempotency_record_fingerprint_check,
      ALTER COLUMN attempt TYPE smallint,
      RESET (fillfactor);
UPDATE idempotency_record SET fingerprint = substr(fingerprint, 1, 16);
ALTER TABLE idempotency_record
      ADD CONSTRAINT idempotency_record_fingerprint_check CHECK (length(fingerprint) = 16)
