#!lua
-- The ledger's one script. KEYS: meta, nodes, pods, units (one hash tag). ARGV: operation, msgpack header, msgpack body.
--
-- Order in every call: generation and epoch, then the writer's sequence (a repeated number is answered from the stored
-- reply, a gap is refused), then the operation, which decides everything before its first write. Scripts are isolated
-- but not transactional: an error after the first write would leave it in place, so nothing after it can fail.
-- Numbers are doubles: every amount is below 2^53 and every sum is checked against it.
--
-- Records, packed: node {flags, name, {rid, allocatable, used, foreign}*}; pod {node, unit, attempt epoch, attempt
-- number, binder epoch, resourceVersion, state, {rid, amount}*}; unit {attempt epoch, number, kind, node, rid}.
local META, NODES, PODS, UNITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local GRANTED, NO_FIT, SUPERSEDED, HELD, NODE_MISSING, FLAGGED = 1, 2, 3, 4, 5, 6
local RESERVED, BINDING, BOUND = 1, 2, 3
local MAX = 9007199254740991
local pack, unpack_message = cmsgpack.pack, cmsgpack.unpack
local operation = ARGV[1]
local header, body = unpack_message(ARGV[2]), unpack_message(ARGV[3])

local function text(number) return string.format('%.0f', number) end

local function read(key, names)
  local found = {}
  for first = 1, #names, 1000 do
    local last = math.min(first + 999, #names)
    local values = redis.call('HMGET', key, unpack(names, first, last))
    for i = first, last do
      local value = values[i - first + 1]
      if value then found[names[i]] = unpack_message(value) end
    end
  end
  return found
end

local function write(key, records, dirty)
  local args, removed = {}, {}
  local function flush()
    if #args > 0 then redis.call('HSET', key, unpack(args)) args = {} end
    if #removed > 0 then redis.call('HDEL', key, unpack(removed)) removed = {} end
  end
  for name in pairs(dirty) do
    if records[name] then
      args[#args + 1] = name
      args[#args + 1] = pack(records[name])
    else
      removed[#removed + 1] = name
    end
    if #args >= 2000 or #removed >= 1000 then flush() end
  end
  flush()
end

-- HSET of (name, packed record) pairs.
local function set(key, pairs_)
  for first = 1, #pairs_, 2000 do
    redis.call('HSET', key, unpack(pairs_, first, math.min(first + 1999, #pairs_)))
  end
end

local function slot(node, rid)
  for i = 3, #node, 4 do if node[i] == rid then return i end end
end

-- Room taken in `node` by `lines` (pairs from index `first`): the rid that does not fit, or nil.
local function misfit(node, lines, first)
  for i = first, #lines, 2 do
    local at = slot(node, lines[i])
    if lines[i + 1] > 0 then
      if not at then return lines[i] end
      local sum = node[at + 2] + lines[i + 1]
      if sum + node[at + 3] > node[at + 1] or sum > MAX then return lines[i] end
    end
  end
end

local function book(node, lines, first, sign)
  for i = first, #lines, 2 do
    local at = slot(node, lines[i])
    if not at then
      at = #node + 1
      node[at], node[at + 1], node[at + 2], node[at + 3] = lines[i], 0, 0, 0
    end
    node[at + 2] = node[at + 2] + sign * lines[i + 1]
  end
end

-- ------------------------------------------------------------------------------------------------ install
if operation == 'install' then
  -- header: owner, schema, epoch, fresh generation, force
  local owner, schema, epoch, generation, force = header[1], header[2], header[3], header[4], header[5]
  local meta = redis.call('HMGET', META, 'owner', 'schema', 'generation', 'epoch', 'names')
  local intact = meta[3] and not force
  if meta[1] and meta[1] ~= owner then return {'refused', 'owner', meta[1]} end
  if meta[2] and meta[2] ~= text(schema) then return {'refused', 'schema', meta[2]} end
  local previous = tonumber(meta[4] or '0')
  if epoch < previous then return {'fenced', text(previous)} end
  local open = intact and redis.call('HLEN', PODS) or 0
  if not intact then
    redis.call('DEL', NODES, PODS, UNITS)
    redis.call('HSET', META, 'names', '')
  end
  redis.call('HSET', META, 'owner', owner, 'schema', text(schema), 'epoch', text(epoch), 'seq', '0',
    'generation', intact and meta[3] or generation, 'reply', '')
  return {'ok', intact and meta[3] or generation, intact and 1 or 0, text(previous), text(open),
    intact and meta[5] or ''}
end

-- ------------------------------------------------------------------------------------------------- prologue
-- header: generation, epoch, sequence, names (packed list, or '' when unchanged)
local meta = redis.call('HMGET', META, 'generation', 'epoch', 'seq', 'reply')
if not meta[1] or meta[1] ~= header[1] then return {'lost'} end
if tonumber(meta[2]) ~= header[2] then return {'fenced', meta[2]} end
local sequence = tonumber(meta[3])
if header[3] == sequence then return {'ok', meta[4]} end
if header[3] ~= sequence + 1 then return {'gap', meta[3]} end
local epoch = header[2]

local function finish(reply)
  local packed = pack(reply)
  redis.call('HSET', META, 'seq', text(header[3]), 'reply', packed)
  if header[4] ~= '' then redis.call('HSET', META, 'names', header[4]) end
  return {'ok', packed}
end

-- -------------------------------------------------------------------------------------------------- reserve
if operation == 'reserve' then
  -- body: {lines*, units*}; lines: {rid, amount}*; unit: {unit, attempt epoch, attempt number, {pod, node, lines}*}.
  -- From ARGV[4] on, for each unit: its record if it is granted, then a record for each member, packed by the client.
  local all_lines, proposals = body[1], body[2]
  local unit_ids, pod_ids, node_ids, seen = {}, {}, {}, {}
  for index, unit in ipairs(proposals) do
    unit_ids[index] = unit[1]
    for i = 4, #unit, 3 do
      pod_ids[#pod_ids + 1] = unit[i]
      local node = unit[i + 1]
      if not seen[node] then seen[node] = true node_ids[#node_ids + 1] = node end
    end
  end
  local units, pods, nodes = read(UNITS, unit_ids), read(PODS, pod_ids), read(NODES, node_ids)
  local dirty_nodes, replies, unit_args, pod_args = {}, {}, {}, {}

  local function decide(unit)
    local stored = units[unit[1]]
    if stored then
      if stored[1] == unit[2] and stored[2] == unit[3] then return {stored[3], stored[4], stored[5]}, true end
      if stored[1] > unit[2] or (stored[1] == unit[2] and stored[2] > unit[3]) then
        return {SUPERSEDED, '', 0}, true
      end
    end
    for i = 4, #unit, 3 do
      local held = pods[unit[i]]
      if held then return {HELD, held[1], held[7]}, true end
    end
    for i = 5, #unit, 3 do
      local node = nodes[unit[i]]
      if not node then return {NODE_MISSING, unit[i], 0} end
      if node[1] ~= 0 then return {FLAGGED, unit[i], 0} end
    end
    for i = 5, #unit, 3 do
      local node, lines = nodes[unit[i]], all_lines[unit[i + 1]]
      local rid = misfit(node, lines, 1)
      if rid then
        for back = 5, i - 1, 3 do book(nodes[unit[back]], all_lines[unit[back + 1]], 1, -1) end
        return {NO_FIT, unit[i], rid}
      end
      book(node, lines, 1, 1)
    end
  end

  local granted = {GRANTED, '', 0}
  local next_arg = 4
  for index, unit in ipairs(proposals) do
    local reply, known = decide(unit)
    local arg = next_arg
    next_arg = next_arg + 1 + (#unit - 3) / 3
    if not reply then
      -- Later units of the batch see this one: its pods are held, its attempt is the last seen.
      units[unit[1]] = {unit[2], unit[3], GRANTED, '', 0}
      unit_args[#unit_args + 1] = unit[1]
      unit_args[#unit_args + 1] = ARGV[arg]
      for i = 4, #unit, 3 do
        arg = arg + 1
        pods[unit[i]] = {unit[i + 1], 0, 0, 0, 0, 0, RESERVED}
        pod_args[#pod_args + 1] = unit[i]
        pod_args[#pod_args + 1] = ARGV[arg]
        dirty_nodes[unit[i + 1]] = true
      end
      reply = granted
    elseif not known then
      units[unit[1]] = {unit[2], unit[3], reply[1], reply[2], reply[3]}
      unit_args[#unit_args + 1] = unit[1]
      unit_args[#unit_args + 1] = pack(units[unit[1]])
    end
    replies[index] = reply
  end
  write(NODES, nodes, dirty_nodes)
  set(PODS, pod_args)
  set(UNITS, unit_args)
  return finish(replies)
end

-- ----------------------------------------------------------------------------------------------- transition
if operation == 'transition' then
  -- body: {code, uid, resourceVersion, node, unit, attempt epoch, attempt number, {rid, amount}*}*
  local pod_ids, node_ids, seen = {}, {}, {}
  for _, op in ipairs(body) do if op[1] ~= 5 then pod_ids[#pod_ids + 1] = op[2] end end
  local pods = read(PODS, pod_ids)
  local function want(node) if not seen[node] then seen[node] = true node_ids[#node_ids + 1] = node end end
  for _, record in pairs(pods) do want(record[1]) end
  for _, op in ipairs(body) do if op[1] == 6 then want(op[4]) end end
  local nodes = read(NODES, node_ids)
  local units, dirty_units, dirty_pods, dirty_nodes, replies = {}, {}, {}, {}, {}

  local function release(uid)
    local record = pods[uid]
    if nodes[record[1]] then
      book(nodes[record[1]], record, 8, -1)
      dirty_nodes[record[1]] = true
    end
    pods[uid] = nil
    dirty_pods[uid] = true
  end

  for index, op in ipairs(body) do
    local code, uid = op[1], op[2]
    local record = pods[uid]
    local applied = 0
    if code == 5 then
      dirty_units[uid] = true
      applied = 1
    elseif code == 6 then
      if record then release(uid) end
      local fresh = {op[4], op[5], op[6], op[7], epoch, op[3], BOUND}
      for line = 8, #op do fresh[#fresh + 1] = op[line] end
      pods[uid] = fresh
      dirty_pods[uid] = true
      if nodes[op[4]] then book(nodes[op[4]], op, 8, 1) dirty_nodes[op[4]] = true end
      applied = 1
    elseif record then
      applied = 1
      if code == 1 and record[7] == RESERVED then record[7] = BINDING
      elseif code == 2 then record[7] = BOUND
      elseif code == 3 then release(uid)
      elseif code == 4 then record[6], record[5] = op[3], epoch
      else applied = 0 end
      if code ~= 3 and applied == 1 then dirty_pods[uid] = true end
    end
    replies[index] = applied
  end
  write(NODES, nodes, dirty_nodes)
  write(PODS, pods, dirty_pods)
  write(UNITS, units, dirty_units)
  return finish(replies)
end

-- ---------------------------------------------------------------------------------------------------- nodes
if operation == 'nodes' then
  -- body: {{node, flags, name, {rid, allocatable, foreign}*}*, removed}
  local ids = {}
  for _, account in ipairs(body[1]) do ids[#ids + 1] = account[1] end
  local nodes, dirty = read(NODES, ids), {}
  for _, account in ipairs(body[1]) do
    local old = nodes[account[1]]
    local record = {account[2], account[3]}
    for i = 4, #account, 3 do
      local used = 0
      if old then local at = slot(old, account[i]) if at then used = old[at + 2] end end
      local n = #record
      record[n + 1], record[n + 2], record[n + 3], record[n + 4] = account[i], account[i + 1], used, account[i + 2]
    end
    for i = 3, old and #old or 0, 4 do
      if old[i + 2] ~= 0 and not slot(record, old[i]) then
        local n = #record
        record[n + 1], record[n + 2], record[n + 3], record[n + 4] = old[i], 0, old[i + 2], 0
      end
    end
    nodes[account[1]] = record
    dirty[account[1]] = true
  end
  for _, uid in ipairs(body[2]) do nodes[uid] = nil dirty[uid] = true end
  write(NODES, nodes, dirty)
  return finish({#body[1], #body[2]})
end

return {'unknown operation'}
