-- Say which partitions of days exist, and how each stands: attached, half detached, or, after a drop that was
-- interrupted, no longer attached. The first columns say what time it is, and whether we may change them.
-- One row without a partition if there is none.
SELECT clock_timestamp(), pg_has_role(parent.relowner, 'USAGE'), part.relname::text, inhrelid IS NOT NULL,
       coalesce(inhdetachpending, false)
  FROM pg_class AS parent
  LEFT JOIN pg_class AS part ON part.relnamespace = parent.relnamespace AND part.relkind = 'r'
                            AND part.relname ~ '^idempotency_(record|checkpoint)_[0-9]{8}$'
  LEFT JOIN pg_inherits ON inhrelid = part.oid
 WHERE parent.oid = to_regclass('idempotency_record')
