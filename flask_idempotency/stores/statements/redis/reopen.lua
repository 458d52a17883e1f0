#!lua flags=allow-oom
-- Let the next attempt resume a quarantined record, and void the effects that did not happen. 0: not quarantined.
-- After *call*, which names this call, and the remark come pairs: an effect, and the proof that it did not happen.
local _, call, remark = unpack(ARGV)
if get('state') ~= 'quarantined' then return get('decided') == call and 1 or 0 end
for i = 4, #ARGV, 2 do
  local name, step = ARGV[i], read_step(ARGV[i])
  if step and step.kind == 'effect' and step.progress == 'sent' then
    write_step(name, step.kind, step.position, 'void', step.generation + 1, whole(now), ARGV[i + 1])
  end
end
drop('token')
add_reason(remark)
set('attempt', 1, 'decided', call)
move('running', whole(now))
lease_until(now)
return 1
