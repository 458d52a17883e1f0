-- Take our own running record out of the open partition. A lease that has passed is no obstacle while the token is ours.
-- It is deleted and inserted, and not moved by an UPDATE: whoever waits for the row would get an error, not the truth.
DELETE FROM idempotency_record_open
 WHERE id = :id AND token = :token AND state = 'running' AND point IS NOT DISTINCT FROM :point
RETURNING *
