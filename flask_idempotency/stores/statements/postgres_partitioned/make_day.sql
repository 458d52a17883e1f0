-- Make the partitions of one day in both tables. This waits for nobody who reads or writes records, nor they for it.
-- The rule is what makes it safe to drop them whole: nothing can be in them that is running, quarantined, or expires
-- on another day.
CREATE TABLE idempotency_record_{name} (LIKE idempotency_record INCLUDING DEFAULTS);
ALTER TABLE idempotency_record_{name}
      ADD CONSTRAINT idempotency_record_{name}_pkey PRIMARY KEY (id),
      ADD CONSTRAINT idempotency_record_{name}_check
          CHECK (length(id) = 32 AND length(fingerprint) = 16 AND state = 'finished' AND status IS NOT NULL
                 AND expires_at >= TIMESTAMPTZ '{first}' AND expires_at < TIMESTAMPTZ '{last}');
ALTER TABLE idempotency_record ATTACH PARTITION idempotency_record_{name} FOR VALUES IN ({number});
CREATE TABLE idempotency_checkpoint_{name} (LIKE idempotency_checkpoint INCLUDING DEFAULTS);
ALTER TABLE idempotency_checkpoint_{name}
      ADD CONSTRAINT idempotency_checkpoint_{name}_pkey PRIMARY KEY (record_id, name);
ALTER TABLE idempotency_checkpoint ATTACH PARTITION idempotency_checkpoint_{name} FOR VALUES IN ({number})
