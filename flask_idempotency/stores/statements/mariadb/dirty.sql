-- Read what an open transaction has written and nobody else can see: whose request it is that holds the row. Not to be
-- believed otherwise, because it may never be committed.
SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;
SELECT fingerprint, state
  FROM idempotency_record
 WHERE id = :id
