#!lua flags=allow-oom
-- End the lease of a running record, whoever holds it, and delete nothing. 0: it is not running.
-- *call* names this call: sent again because its answer was lost, it is recognised.
local _, call, remark = unpack(ARGV)
if get('decided') == call then return 1 end
if get('state') ~= 'running' then return 0 end
drop('token')
add_reason(remark)
set('decided', call)
lease_until(now)
return 1
