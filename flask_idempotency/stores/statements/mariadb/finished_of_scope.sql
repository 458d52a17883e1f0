-- Of the next few records by their ids, give the finished ones of a caller, expired or not; and at the end the last id
-- looked at, or NULL if there are no more. No statement reads the whole table, with or without an index of callers.
WITH part AS (
    SELECT id, scope, state
      FROM idempotency_record
     WHERE id > :after
     ORDER BY id
     LIMIT :limit
)
SELECT id FROM (
    SELECT 0 AS place, id FROM part WHERE scope = :scope AND state = 'finished'
     UNION ALL
    SELECT 1, CASE WHEN count(*) = :limit THEN max(id) END FROM part
) AS found
 ORDER BY place
