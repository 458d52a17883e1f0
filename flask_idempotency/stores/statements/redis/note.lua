#!lua flags=allow-oom
-- Store on our own record why we cannot continue, unless that was the last thing stored there.
local _, token, reason = unpack(ARGV)
local known = get('reason') or ''
if is_ours(token) and string.sub(known, -#reason) ~= reason then add_reason(reason) end
return 1
