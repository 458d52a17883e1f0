#!lua flags=allow-oom
-- Delete a finished record that expired more than *grace* ago, and what is left of one that is gone. 1: deleted.
local _, grace = unpack(ARGV)
local state = get('state')
if not state then erase() end
if state ~= 'finished' or tonumber(get('expires_at')) >= now - grace then return 0 end
erase()
return 1
