#!lua flags=allow-oom
-- End our own lease, and delete nothing. 0: the claim was lost.
-- *call* names this call: sent again because its answer was lost, it is recognised, even after the next claim.
local _, token, call = unpack(ARGV)
if is_ours(token) then
  drop('token')
  set('ended', call)
  lease_until(now)
  return 1
end
return get('ended') == call and 1 or 0
