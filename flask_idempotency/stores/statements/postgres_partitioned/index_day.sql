-- Make the index that a quota needs on the records of one day.
CREATE INDEX idempotency_record_{name}_scope ON idempotency_record_{name} (scope)
