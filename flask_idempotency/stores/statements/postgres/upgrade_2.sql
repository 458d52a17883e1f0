-- From version 1 or 2 to 3: a fingerprint is shorter, and so is the number of an attempt. The rest of a fingerprint is as it was.
ALTER TABLE idempotency_record
      DROP CONSTRAINT idempotency_record_fingerprint_check,
      ALTER COLUMN attempt TYPE smallint,
      RESET (fillfactor);
UPDATE idempotency_record SET fingerprint = substr(fingerprint, 1, 16);
ALTER TABLE idempotency_record
      ADD CONSTRAINT idempotency_record_fingerprint_check CHECK (length(fingerprint) = 16)
