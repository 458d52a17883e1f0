-- Take the right to run for as long as the transaction lasts: the row is the lock, and nobody else sees it.
-- It says from the beginning what is true if the transaction is committed by anybody but us, as by a DDL statement in
-- the view: that a person has to find out what was done. finish turns it into the answer.
-- A duplicate key: there is a record already. A lock that is not free: somebody else has the right.
SET STATEMENT innodb_lock_wait_timeout = :wait, max_statement_time = :longest FOR
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, reason)
VALUES (:id, :scope, :method, :path, :fingerprint, 'quarantined', :token, 1, UTC_TIMESTAMP(6), :reason)
