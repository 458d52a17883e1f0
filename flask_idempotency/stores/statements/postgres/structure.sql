-- Say what the database has of our tables: columns, indexes, and leftovers of older versions.
-- No row back: there is no table.
WITH ours AS (
    SELECT oid, relname::text AS name, reloptions, relkind
      FROM pg_class
     WHERE oid IN (to_regclass('idempotency_record'), to_regclass('idempotency_checkpoint'))
)
SELECT ours.name, 'column', attname::text
  FROM ours JOIN pg_attribute ON attrelid = ours.oid
 WHERE attnum > 0 AND NOT attisdropped
 UNION ALL
SELECT ours.name, 'index', made.relname::text
  FROM ours
  JOIN pg_index ON indisvalid AND indrelid = CASE relkind WHEN 'p' THEN to_regclass(ours.name || '_open') ELSE ours.oid END
  JOIN pg_class AS made ON made.oid = indexrelid
 UNION ALL
SELECT ours.name, 'long fingerprints', conname::text
  FROM ours JOIN pg_constraint ON conrelid = ours.oid
 WHERE contype = 'c' AND pg_get_constraintdef(pg_constraint.oid) LIKE '%length(fingerprint) = 33%'
 UNION ALL
SELECT ours.name, 'fill factor', ''
  FROM ours
 WHERE 'fillfactor=80' = ANY (reloptions)
 UNION ALL
SELECT ours.name, 'partitioned', ''
  FROM ours
 WHERE relkind = 'p'
