#!lua flags=allow-oom
-- Start our lease again from now. 0: the claim was lost.
local _, token, lease = unpack(ARGV)
if not is_ours(token) then return 0 end
lease_until(now + lease)
return 1
