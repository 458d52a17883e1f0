#!lua flags=allow-oom
-- End a running record that no attempt has held for *age*: delete it if nothing was done, else quarantine it.
-- *may_delete* and *may_quarantine* say which of the two is still to be done in this batch.
local _, age, request, reason, may_delete, may_quarantine = unpack(ARGV)
local state = get('state')
if not state then erase() end
if state ~= 'running' or tonumber(get('lease_until')) >= now - age then return '' end
local point = get('point')
if not point or point == request then
  if may_delete == '0' then return '' end
  erase()
  return 'deleted'
end
if may_quarantine == '0' then return '' end
give_up(reason)
return 'quarantined'
