#!lua flags=allow-oom
-- Finish a quarantined record with an answer that a person chose; the answer is not its owner's. 0: not quarantined.
-- *call* names this call: sent again because its answer was lost, it is recognised.
local _, call, remark, retention, request, status, headers, body = unpack(ARGV)
if get('state') ~= 'quarantined' then return get('decided') == call and 1 or 0 end
drop('token')
add_reason(remark)
finish(retention, status, headers, body, request)
set('decided', call)
return 1
