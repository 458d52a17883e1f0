-- Make the server abort the later statements of this transaction before we stop waiting for them: a statement that
-- outlives its caller could be executed at any time later, and would occupy a server process until then.
-- This is a statement of its own because a statement waits for table locks before it begins. It does not shorten a
-- COMMIT's wait for a standby.
SELECT set_config('lock_timeout', :wait, true), set_config('statement_timeout', :longest, true)
