#!lua flags=allow-oom
-- Record how far our run has come, if it is where we believe, or there already. 0: the claim was lost.
-- An effect keeps the time of its first sending in a generation.
local _, token, previous, point, name, kind, position, progress, generation, result = unpack(ARGV)
local reached = get('point') or ''
if not is_ours(token) or (reached ~= previous and reached ~= point) then return 0 end
local before = read_step(name)
local is_same = before and before.generation == generation and before.progress ~= 'void'
set('point', point)
write_step(name, kind, position, progress, generation, is_same and before.at or whole(now), result)
return 1
