-- Fail, by a division by zero, if the transaction has done more than read: then it has a number, and what comes behind
-- this in the same round trip is not carried out.
SELECT 1 / (pg_current_xact_id_if_assigned() IS NULL)::integer
