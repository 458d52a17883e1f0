-- Limit how long each of the following statements may take, on a connection of ours alone.
SET statement_timeout = '{longest}'
