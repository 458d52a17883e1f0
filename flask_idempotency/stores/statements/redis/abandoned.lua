#!lua flags=allow-oom
-- Read a running record that no attempt holds and whose request was stored long enough ago; nothing if it is not one.
local _, age, request = unpack(ARGV)
if get('state') ~= 'running' or (get('token') and tonumber(get('lease_until')) > now) then return false end
local stored = read_step(request)
return stored and tonumber(stored.at) <= now - age and row() or false
