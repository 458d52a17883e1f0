-- Say what the database has of our tables: columns, indexes, and leftovers of older versions.
-- No row back: there is no table.
SELECT ours.name, 'column', info.name
  FROM sqlite_master AS ours, pragma_table_info(ours.name) AS info
 WHERE ours.type = 'table' AND ours.name IN ('idempotency_record', 'idempotency_checkpoint')
 UNION ALL
SELECT tbl_name, 'index', name
  FROM sqlite_master
 WHERE type = 'index' AND tbl_name IN ('idempotency_record', 'idempotency_checkpoint')
 UNION ALL
SELECT name, 'long fingerprints', ''
  FROM sqlite_master
 WHERE type = 'table' AND name = 'idempotency_record' AND sql LIKE '%length(fingerprint) = 33%'
