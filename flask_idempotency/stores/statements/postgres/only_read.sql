-- Fail with a division by zero if the transaction has written anything: then it has an id, and the server does not
-- execute what follows in the same round trip.
SELECT 1 / (pg_current_xact_id_if_assigned() IS NULL)::integer
