-- Say whether an open transaction has the right to run: it holds the record's lock.
-- For a lock on a bigint, classid is the upper half and objid the lower.
SELECT EXISTS (
         SELECT
           FROM pg_locks
          WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32 | objid::bigint) = :lock::bigint
       )
