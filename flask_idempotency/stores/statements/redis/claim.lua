#!lua
-- Give one caller the right to run, or say what stands in the way. Repeated with the same token, it is the same claim.
-- A server without memory refuses this script alone, before it has written anything: whoever runs can still finish.
-- An expired record counts as absent. Only a lease that ran out counts as taken over; one that was ended has no token.
local _, token, lease, fingerprint, takeovers, too_many, reference, scope, method, path = unpack(ARGV)
local point, name, kind, position, progress, generation, result = unpack(ARGV, 11)
local state = get('state')

if not state or has_expired() then
  redis.call('DEL', record, steps)
  set('id', id, 'scope', scope, 'method', method, 'path', path, 'fingerprint', fingerprint,
      'token', token, 'attempt', 1, 'created_at', whole(now), 'lease_until', whole(now + lease))
  redis.call('ZADD', references, reference, id)
  redis.call('ZADD', created, whole(now), id)
  move('running', whole(now + lease))
  if point then
    set('point', point)
    write_step(name, kind, position, progress, generation, whole(now), result)
  end
  return {'claim', 1, 0, point or ''}
end

local held = get('token')
if state ~= 'running' then return {'settled', get('ended') == token and 1 or 0, row()} end
if held == token then return {'claim', tonumber(get('attempt')), 0, get('point') or ''} end

local left = tonumber(get('lease_until')) - now
if get('fingerprint') ~= fingerprint or (held and left > 0) then return {'busy', get('fingerprint'), left} end

if held and tonumber(get('attempt')) > tonumber(takeovers) then
  set('ended', token)
  give_up(too_many)
  return {'settled', 1, row()}
end

if held then redis.call('HINCRBY', record, 'attempt', 1) end
set('token', token)
lease_until(now + lease)
return {'claim', tonumber(get('attempt')), held and 1 or 0, get('point') or ''}
