#!lua flags=allow-oom
-- Blank the answer of a finished record, expired or not, and what its phases and effects have returned; *headers* are
-- those of a body that was not kept, with that status. 0: it has not finished with this status. Done again, it changes
-- nothing.
local _, remark, status, headers = unpack(ARGV)
if get('state') ~= 'finished' or get('status') ~= status then return 0 end
local is_new = get('body') or get('headers') ~= headers
for _, name in ipairs(redis.call('HKEYS', steps)) do
  local step = read_step(name)
  is_new = is_new or step.result ~= ''
  write_step(name, step.kind, step.position, step.progress, step.generation, step.at, '')
end
drop('body')
set('headers', headers)
if is_new then add_reason(remark) end
return 1
