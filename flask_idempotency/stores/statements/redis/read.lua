#!lua flags=allow-oom
-- Read one record, expired or not; nothing if there is none.
-- Refused by a replica, as every script is: what decides about a run is read where it was written.
return get('state') and row() or false
