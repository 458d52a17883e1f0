-- Of the next few records by their ids, give the finished ones of a caller, expired or not; and at the end the last id
-- looked at, or NULL if there are no more. No statement reads the whole table, with or without an index of callers.
-- An id may be in two partitions, once running and once expired, and both are looked at in the same step.
WITH part AS (
    SELECT id, scope, state
      FROM idempotency_record
     WHERE id > :after
     ORDER BY id
     FETCH FIRST :limit ROWS WITH TIES
)
SELECT id FROM (
    SELECT DISTINCT 0 AS place, id FROM part WHERE scope = :scope AND state = 'finished'
     UNION ALL
    SELECT 1, CASE WHEN count(*) >= :limit THEN (SELECT id FROM part ORDER BY id DESC LIMIT 1) END FROM part
) AS found
 ORDER BY place
