-- Say whether the server is a standby, and whether we are connected to it directly or through a pooler. Only on a
-- direct connection, make the server abort our statements before we stop waiting for them, as bound does: behind a
-- pooler, the setting would reach other clients.
-- There too, give each statement a snapshot of its own, whatever the role's default is: a claim looks after a lock.
SELECT pg_is_in_recovery(), pg_backend_pid() = :number,
       set_config('lock_timeout', :wait, pg_backend_pid() <> :number),
       set_config('statement_timeout', :longest, pg_backend_pid() <> :number),
       set_config('default_transaction_isolation', 'read committed', pg_backend_pid() <> :number)
