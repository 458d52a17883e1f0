#!lua flags=allow-oom
-- Quarantine our own record, once. 0: the claim was lost.
local _, token, reason = unpack(ARGV)
if get('state') == 'quarantined' and get('token') == token then return 1 end
if not is_ours(token) then return 0 end
give_up(reason)
return 1
