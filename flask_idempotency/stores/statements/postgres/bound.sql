-- Have the server give up what follows in this transaction before we do: a statement that outlived its caller would be
-- carried out at any time later, and keep one of the server's processes until then. A table's lock is waited for before a
-- statement begins, so this is a statement of its own. The wait for a standby at COMMIT is not cut short by it.
SELECT set_config('lock_timeout', :wait, true), set_config('statement_timeout', :longest, true)
