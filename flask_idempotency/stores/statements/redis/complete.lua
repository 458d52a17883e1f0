#!lua flags=allow-oom
-- Finish our own record, once, even if the lease has expired. Retention counts from here. 0: the claim was lost.
-- The token stays, to show whose answer it is: completing the same claim again changes nothing.
local _, token, point, retention, request, status, headers, body = unpack(ARGV)
if get('state') == 'finished' and get('token') == token and not has_expired() then return 1 end
if not is_ours(token) or (get('point') or '') ~= point then return 0 end
finish(retention, status, headers, body, request)
return 1
