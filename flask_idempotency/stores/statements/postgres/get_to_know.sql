-- Say whether the server is a standby, and whether we talk to it directly or through a pooler. Only if directly, have it
-- give up what we send before we do, as bound says; whatever a pooler keeps would meet somebody else.
SELECT pg_is_in_recovery(), pg_backend_pid() = :number,
       set_config('lock_timeout', :wait, pg_backend_pid() <> :number),
       set_config('statement_timeout', :longest, pg_backend_pid() <> :number)
