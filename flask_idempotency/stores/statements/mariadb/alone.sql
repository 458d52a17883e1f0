-- Take the lock that makes workers create or upgrade the tables one after the other. It belongs to the connection and
-- not to a transaction: each statement that changes a table commits at once.
SELECT GET_LOCK(CONCAT('flask_idempotency_init.', DATABASE()), 3600)
