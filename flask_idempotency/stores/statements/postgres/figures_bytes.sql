-- Say how many bytes both tables take on disk, with their indexes.
SELECT pg_total_relation_size('idempotency_record') + pg_total_relation_size('idempotency_checkpoint')
