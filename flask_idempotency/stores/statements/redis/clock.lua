#!lua flags=allow-oom
-- The server's time.
return whole(now)
