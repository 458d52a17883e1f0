-- What each script begins with: the keys of a record and of the indexes it is in, the server's clock, and small steps.
-- All keys are in one hash slot, so each script is one atomic step on a cluster too. Times are in microseconds.
-- A record whose key is gone was deleted by someone else, or evicted; what is left of it in the indexes proves nothing.
local record, steps, references, created, running, finished, quarantined = unpack(KEYS)
local id = ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function whole(number) return string.format('%.0f', number) end
local function get(field) return redis.call('HGET', record, field) end
local function set(...) redis.call('HSET', record, ...) end
local function drop(...) redis.call('HDEL', record, ...) end

local function has_expired()
  local at = get('expires_at')
  return at and tonumber(at) <= now
end

local function is_ours(token) return get('state') == 'running' and get('token') == token end

-- File the record under its state, and under no other: running ones by the end of their lease, finished ones by their
-- expiry, quarantined ones by their creation.
local function move(state, score)
  for _, index in ipairs({running, finished, quarantined}) do redis.call('ZREM', index, id) end
  local index = ({running = running, finished = finished, quarantined = quarantined})[state]
  redis.call('ZADD', index, score, id)
  set('state', state)
end

local function lease_until(instant)
  set('lease_until', whole(instant))
  redis.call('ZADD', running, whole(instant), id)
end

local function add_reason(reason)
  local known = get('reason')
  set('reason', known and known .. '; ' .. reason or reason)
end

local function give_up(reason)
  add_reason(reason)
  move('quarantined', get('created_at'))
end

local function finish(retention, status, headers, body, request)
  local at = whole(now + retention)
  set('status', status, 'headers', headers, 'expires_at', at)
  if body then set('body', body) end
  drop('lease_until', 'ended')
  redis.call('HDEL', steps, request)
  move('finished', at)
end

local function erase()
  redis.call('DEL', record, steps)
  for _, index in ipairs({references, created, running, finished, quarantined}) do redis.call('ZREM', index, id) end
end

local function read_step(name)
  local text = redis.call('HGET', steps, name)
  if not text then return nil end
  local kind, position, progress, generation, at, result = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  return {kind = kind, position = position, progress = progress, generation = generation, at = at, result = result}
end

local function write_step(name, kind, position, progress, generation, at, result)
  redis.call('HSET', steps, name, table.concat({kind, position, progress, generation, at, result}, ' '))
end

-- The fields of the record, each after its name, and the time.
local function row()
  local fields = redis.call('HGETALL', record)
  fields[#fields + 1], fields[#fields + 2] = 'now', whole(now)
  return fields
end
