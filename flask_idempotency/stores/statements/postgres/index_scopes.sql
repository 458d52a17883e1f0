-- Give the statements that make the index a quota needs, on the table of records or on each of its partitions, beside
-- all who use them. One that was left unfinished is dropped first. The open partition comes last: it is the one that is
-- checked, and it has the index of the plain table that it was.
WITH record AS (
    SELECT oid, regexp_replace(relname, '_open$', '') || '_scope' AS index, relname LIKE '%_open' AS is_open
      FROM pg_class
     WHERE relkind = 'r'
       AND oid IN (SELECT to_regclass('idempotency_record')
                    UNION ALL
                   SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('idempotency_record'))
), made AS (
    SELECT record.*, relname IS NOT NULL AS exists, coalesce(indisvalid, true) AS is_valid
      FROM record
      LEFT JOIN (pg_index JOIN pg_class AS c ON c.oid = indexrelid) ON indrelid = record.oid AND relname = index
)
SELECT statement
  FROM (SELECT is_open, 1 AS step, format('DROP INDEX CONCURRENTLY %I', index) AS statement
          FROM made
         WHERE NOT is_valid
         UNION ALL
        SELECT is_open, 2, format('CREATE INDEX CONCURRENTLY %I ON %s (scope)', index, oid::regclass)
          FROM made
         WHERE NOT (exists AND is_valid)) AS steps
 ORDER BY is_open, step
