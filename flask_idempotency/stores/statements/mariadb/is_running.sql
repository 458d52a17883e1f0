-- Say whether an open transaction has the right to run a request of this scope whose reference stands for these ids:
-- there is a row that only a look at what is not committed shows.
SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;
SELECT id
  FROM idempotency_record
 WHERE id BETWEEN :lowest AND :highest AND scope = :scope AND state = 'quarantined' AND reason = :reason
