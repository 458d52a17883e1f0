-- Say how many bytes both tables take on disk, with their partitions and indexes.
SELECT sum(pg_total_relation_size(relid))::bigint
  FROM (SELECT relid FROM pg_partition_tree('idempotency_record')
         UNION ALL
        SELECT relid FROM pg_partition_tree('idempotency_checkpoint')) AS tables
