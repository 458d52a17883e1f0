-- Say whether a transaction that is open has the right to run: it holds the record's lock.
-- Of a lock on a bigint, classid is the upper half and objid the lower one.
SELECT EXISTS (
         SELECT
           FROM pg_locks
          WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32 | objid::bigint) = :lock::bigint
       )
