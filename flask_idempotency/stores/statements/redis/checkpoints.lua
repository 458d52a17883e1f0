#!lua flags=allow-oom
-- Read the checkpoints of a run: name, kind, position, state, generation, result, and age in microseconds.
-- Refused by a replica, as every script is: what decides about a run is read where it was written.
local found = {}
for _, name in ipairs(redis.call('HKEYS', steps)) do
  local step = read_step(name)
  found[#found + 1] = {name, step.kind, step.position, step.progress, step.generation, step.result, now - step.at}
end
return found
