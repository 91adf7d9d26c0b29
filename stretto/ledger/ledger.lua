#!lua
-- The ledger's one script. KEYS: meta, nodes, open, bound, units (one hash tag). ARGV: operation, then as each says.
--
-- Order in every numbered call: stamp (generation, epoch, writer), then the writer's sequence (the last number again is
-- answered from the stored reply, any other but the next is a gap), then the operation, which decides everything before
-- its first write. Scripts are isolated but not transactional: an error after the first write would leave it in place,
-- so nothing after it can fail. Numbers are doubles: amounts and sums stay below 2^53.
--
-- Records
--   node  struct of doubles: flags, {rid, allocatable, used, foreign}*
--   pod   one character of state, then msgpack {node, unit ('' = the pod's own uid), attempt epoch, attempt number,
--         resourceVersion, binder epoch, {rid, amount}*}; in `open` until it is BOUND, then in `bound`
--   unit  msgpack {attempt epoch, attempt number} if that was granted, else with {kind, node, rid} behind
-- A removed node on which something is reserved stays as REMOVED until the last of it is freed, so that `used` is
-- always the sum of the pods' amounts.
local META, NODES, OPEN, BOUND, UNITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local GRANTED, NO_FIT, SUPERSEDED, HELD, NODE_MISSING, FLAGGED = 1, 2, 3, 4, 5, 6
local FROZEN_FLAG, REMOVED_FLAG = 1, 2
local RESERVED_BYTE, BOUND_BYTE = 49, 51
local MAX = 9007199254740991
local SLICE = 1000 -- unpack() takes some 8,000 values
local pack, unpack_message = cmsgpack.pack, cmsgpack.unpack
local operation = ARGV[1]

local function text(number) return string.format('%.0f', number) end

-- Values of the named fields, by index; false where there is none.
local function fetch(key, names)
  local count = #names
  if count == 0 then return {} end
  if count <= SLICE then return redis.call('HMGET', key, unpack(names)) end
  local found = {}
  for first = 1, count, SLICE do
    local last = math.min(first + SLICE - 1, count)
    local part = redis.call('HMGET', key, unpack(names, first, last))
    for i = 1, #part do found[first + i - 1] = part[i] end
  end
  return found
end

-- HSET of the (name, value) pairs args[first .. last].
local function store(key, args, first, last)
  for i = first, last, 2 * SLICE do
    redis.call('HSET', key, unpack(args, i, math.min(i + 2 * SLICE - 1, last)))
  end
end

local function drop(key, names)
  for i = 1, #names, SLICE do
    redis.call('HDEL', key, unpack(names, i, math.min(i + SLICE - 1, #names)))
  end
end

local formats = {}
local function format_of(count)
  local format = formats[count]
  if not format then
    format = '<' .. string.rep('d', count)
    formats[count] = format
  end
  return format
end

local function read_node(packed)
  local node = {struct.unpack(format_of(#packed / 8), packed)}
  node[#node] = nil -- the position behind the last value
  return node
end

local function pack_node(node) return struct.pack(format_of(#node), unpack(node)) end

local function slot(node, rid)
  for i = 2, #node, 4 do if node[i] == rid then return i end end
end

-- Takes room on `node` for `lines` {rid, amount, where its slot was last}*; or takes none and returns the rid that does
-- not fit. Nodes mostly list their resources alike, so that the last slot is mostly the right one.
local function take(node, lines)
  for i = 1, #lines, 3 do
    local rid, amount, at = lines[i], lines[i + 1], lines[i + 2]
    if amount > 0 then
      if node[at] ~= rid then
        at = slot(node, rid)
        if at then lines[i + 2] = at end
      end
      local sum = at and node[at + 2] + amount
      if not at or sum > MAX or sum + node[at + 3] > node[at + 1] then
        for back = 1, i - 3, 3 do
          if lines[back + 1] > 0 then
            local undo = slot(node, lines[back])
            node[undo + 2] = node[undo + 2] - lines[back + 1]
          end
        end
        return rid
      end
      node[at + 2] = sum
    end
  end
end

local function give_back(node, lines)
  for i = 1, #lines, 3 do
    if lines[i + 1] > 0 then
      local at = slot(node, lines[i])
      node[at + 2] = node[at + 2] - lines[i + 1]
    end
  end
end

local function ensure(node, rid)
  local at = slot(node, rid)
  if not at then
    at = #node + 1
    node[at], node[at + 1], node[at + 2], node[at + 3] = rid, 0, 0, 0
  end
  return at
end

local function unused(node)
  for i = 4, #node, 4 do if node[i] ~= 0 then return false end end
  return true
end

-- HSET and HDEL of the touched nodes of a table uid -> node or nil.
local function write_nodes(nodes, dirty)
  local args, gone = {}, {}
  for uid in pairs(dirty) do
    local node = nodes[uid]
    if node and (node[1] ~= REMOVED_FLAG or not unused(node)) then
      args[#args + 1] = uid
      args[#args + 1] = pack_node(node)
    else
      gone[#gone + 1] = uid
    end
  end
  store(NODES, args, 1, #args)
  drop(NODES, gone)
end

local function fetch_nodes(wanted)
  local uids, nodes = {}, {}
  for uid in pairs(wanted) do uids[#uids + 1] = uid end
  local found = fetch(NODES, uids)
  for i = 1, #uids do if found[i] then nodes[uids[i]] = read_node(found[i]) end end
  return nodes
end

-- ------------------------------------------------------------------------------------------------ install
if operation == 'install' then
  -- ARGV: owner, schema, epoch, token (names the writer, and the generation if a new one begins), force
  local owner, schema, epoch, token, force = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'
  local meta = redis.call('HMGET', META, 'owner', 'schema', 'generation', 'epoch', 'state', 'token', 'names', 'answer',
    'server')
  if meta[1] and meta[1] ~= owner then return {'refused', 'owner', meta[1]} end
  if meta[2] and meta[2] ~= schema then return {'refused', 'schema', meta[2]} end
  if meta[6] == token then return {'ok', meta[8], meta[7]} end
  local previous = tonumber(meta[4] or '0')
  if epoch < previous then return {'fenced', meta[4]} end
  local intact = meta[3] and meta[5] == 'OPEN' and not force
  local generation = intact and meta[3] or token
  local open = intact and redis.call('HLEN', OPEN) or 0
  local names = intact and meta[7] or ''
  local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
  local restarted = intact and (server == '' or meta[9] ~= server)
  local answer = pack({generation, intact and 1 or 0, previous, open, restarted and 1 or 0})
  if not intact then redis.call('UNLINK', NODES, OPEN, BOUND, UNITS) end
  redis.call('HSET', META, 'owner', owner, 'schema', schema, 'generation', generation, 'epoch', ARGV[4],
    'state', intact and 'OPEN' or 'REBUILD', 'token', token, 'names', names, 'answer', answer,
    'stamp', generation .. ' ' .. ARGV[4] .. ' ' .. token, 'seq', '0', 'reply', '', 'server', server)
  return {'ok', answer, names}
end

-- ------------------------------------------------------------------------------------------------- prologue
-- ARGV of every numbered call: operation, stamp, sequence, names (JSON list, '' when unchanged), then its own
local stamp, seq = ARGV[2], tonumber(ARGV[3])
local meta = redis.call('HMGET', META, 'stamp', 'seq', 'state')
if meta[1] ~= stamp then
  if not meta[1] then return {'lost'} end
  local generation, epoch, writer = string.match(meta[1], '^(%S+) (%S+) (%S+)$')
  local our_generation, our_epoch, our_writer = string.match(stamp, '^(%S+) (%S+) (%S+)$')
  if tonumber(epoch) > tonumber(our_epoch) then return {'fenced', epoch} end
  if epoch == our_epoch and writer ~= our_writer then return {'fenced', epoch} end
  return {'lost'}
end
local last = tonumber(meta[2])
if seq == last then return {'ok', redis.call('HGET', META, 'reply')} end
if seq ~= last + 1 then return {'gap', meta[2]} end
local state = meta[3]

local function finish(reply)
  redis.call('HSET', META, 'seq', ARGV[3], 'reply', reply)
  if ARGV[4] ~= '' then redis.call('HSET', META, 'names', ARGV[4]) end
  return {'ok', reply}
end

-- -------------------------------------------------------------------------------------------------- reserve
if operation == 'reserve' then
  -- ARGV[5]: msgpack {units, members, nodes, then per unit: attempt epoch, number, members, (node index, lines index)*}
  -- ARGV[6]: msgpack list of lines {rid, amount, 2 at first}*. From ARGV[7] on: node uids; (unit, its record if granted)*;
  -- (pod, its record)*, packed by the client, because this script holds up everybody.
  local numbers, all_lines = unpack_message(ARGV[5]), unpack_message(ARGV[6])
  local unit_count, member_count, node_count = numbers[1], numbers[2], numbers[3]
  local units_at = 7 + node_count
  local pods_at = units_at + 2 * unit_count
  local end_at = pods_at + 2 * member_count
  local node_ids, unit_ids, pod_ids = {}, {}, {}
  for i = 1, node_count do node_ids[i] = ARGV[6 + i] end
  for i = 1, unit_count do unit_ids[i] = ARGV[units_at + 2 * i - 2] end
  for i = 1, member_count do pod_ids[i] = ARGV[pods_at + 2 * i - 2] end
  local packed_nodes, units = fetch(NODES, node_ids), fetch(UNITS, unit_ids)
  local open, bound = fetch(OPEN, pod_ids), fetch(BOUND, pod_ids)
  local nodes, dirty = {}, {}
  for i = 1, node_count do nodes[i] = packed_nodes[i] and read_node(packed_nodes[i]) end
  local new_units, new_pods = {}, {} -- of this batch: unit -> record, pod -> record
  local exceptions = {} -- {unit index, kind, node, rid or state, pod}*
  local granted_all = true

  local function held(i, record)
    return HELD, unpack_message(string.sub(record, 2))[1], string.byte(record) - 48, pod_ids[i]
  end

  -- The same attempt was granted: still so for a repetition that names the same pods and nodes, while they are held.
  local function granted_before(index, at, first, count, epoch, number)
    for i = first, first + count - 1 do
      local record = open[i] or bound[i] or new_pods[pod_ids[i]]
      if not record then return SUPERSEDED, '', 0, '' end
      local fields = unpack_message(string.sub(record, 2))
      local unit = fields[2] == '' and pod_ids[i] or fields[2]
      local same = unit == unit_ids[index] and fields[3] == epoch and fields[4] == number
      if not same or fields[1] ~= node_ids[numbers[at + 2 * (i - first)]] then return held(i, record) end
    end
    return GRANTED, '', 0, ''
  end

  -- What the unit is answered without looking at room: kind, node, rid or state, pod.
  local function earlier(index, at, first, count, epoch, number)
    local record = new_units[unit_ids[index]] or units[index]
    if record then
      local seen = unpack_message(record)
      if seen[1] == epoch and seen[2] == number then
        if seen[3] then return seen[3], seen[4], seen[5], '' end
        return granted_before(index, at, first, count, epoch, number)
      end
      if seen[1] > epoch or (seen[1] == epoch and seen[2] > number) then return SUPERSEDED, '', 0, '' end
    end
    for i = first, first + count - 1 do
      local pod_record = open[i] or bound[i] or new_pods[pod_ids[i]]
      if pod_record then return held(i, pod_record) end
    end
  end

  -- Books all members, or none and says why.
  local function misplaced(at, count)
    for i = at, at + 2 * count - 2, 2 do
      local node = nodes[numbers[i]]
      if not node or node[1] == REMOVED_FLAG then return NODE_MISSING, node_ids[numbers[i]], 0 end
      if node[1] ~= 0 then return FLAGGED, node_ids[numbers[i]], 0 end
    end
    for i = at, at + 2 * count - 2, 2 do
      local rid = take(nodes[numbers[i]], all_lines[numbers[i + 1]])
      if rid then
        for back = at, i - 2, 2 do give_back(nodes[numbers[back]], all_lines[numbers[back + 1]]) end
        return NO_FIT, node_ids[numbers[i]], rid
      end
    end
  end

  local unit_args, pod_args = {}, {} -- used once something was refused
  local function keep_range(index, first)
    for i = units_at, units_at + 2 * index - 3 do unit_args[#unit_args + 1] = ARGV[i] end
    for i = pods_at, pods_at + 2 * first - 3 do pod_args[#pod_args + 1] = ARGV[i] end
  end

  local at, first = 4, 1
  for index = 1, unit_count do
    local epoch, number, count = numbers[at], numbers[at + 1], numbers[at + 2]
    at = at + 3
    local unit_arg = units_at + 2 * index - 2
    local kind, node, detail, pod = earlier(index, at, first, count, epoch, number)
    local record = nil
    if not kind then
      kind, node, detail = misplaced(at, count)
      record = kind and pack({epoch, number, kind, node, detail}) or ARGV[unit_arg + 1]
      new_units[unit_ids[index]] = record
    end
    if kind and granted_all then
      granted_all = false
      keep_range(index, first)
    end
    if kind then
      local n = #exceptions
      exceptions[n + 1], exceptions[n + 2], exceptions[n + 3] = index, kind, node
      exceptions[n + 4], exceptions[n + 5] = detail, pod or ''
    end
    if record and not granted_all then
      unit_args[#unit_args + 1] = ARGV[unit_arg]
      unit_args[#unit_args + 1] = record
    end
    if not kind then
      for i = first, first + count - 1 do
        local node_index = numbers[at + 2 * (i - first)]
        new_pods[pod_ids[i]] = ARGV[pods_at + 2 * i - 1]
        dirty[node_index] = true
        if not granted_all then
          pod_args[#pod_args + 1] = pod_ids[i]
          pod_args[#pod_args + 1] = ARGV[pods_at + 2 * i - 1]
        end
      end
    end
    at = at + 2 * count
    first = first + count
  end

  local node_args = {}
  for index in pairs(dirty) do
    node_args[#node_args + 1] = node_ids[index]
    node_args[#node_args + 1] = pack_node(nodes[index])
  end
  store(NODES, node_args, 1, #node_args)
  if granted_all then
    store(UNITS, ARGV, units_at, pods_at - 1)
    store(OPEN, ARGV, pods_at, end_at - 1)
  else
    store(UNITS, unit_args, 1, #unit_args)
    store(OPEN, pod_args, 1, #pod_args)
  end
  if state ~= 'OPEN' then redis.call('HSET', META, 'state', 'OPEN') end
  return finish(pack(exceptions))
end

-- ----------------------------------------------------------------------------------------------- transition
if operation == 'transition' then
  -- ARGV[5]: a digit an operation: 1 binding, 2 bound, 3 free, 4 rebase, 5 forget unit, 6 adopt, 7 foreign.
  -- ARGV[6]: msgpack of what some need besides, at their index, else 0: rebase {resourceVersion, binder epoch}; adopt
  -- {state, node, unit, attempt epoch, number, resourceVersion, binder epoch, {rid, amount}*}; foreign {rid, amount}*.
  -- From ARGV[7] on: their pod, unit or node.
  local codes, extras = ARGV[5], unpack_message(ARGV[6])
  local count = #codes
  local ids = {}
  for i = 1, count do ids[i] = ARGV[6 + i] end
  local open, bound = fetch(OPEN, ids), fetch(BOUND, ids)
  local pods, was, wanted = {}, {}, {} -- pod -> record; pod -> hash it is in; nodes to read
  for i = 1, count do
    local code, uid = string.byte(codes, i) - 48, ids[i]
    local record = open[i] or bound[i]
    if record and not was[uid] then
      pods[uid] = record
      was[uid] = open[i] and OPEN or BOUND
    end
    if code == 7 then wanted[uid] = true end
    if code == 6 then wanted[extras[i][2]] = true end
    if record and (code == 3 or code == 6) then wanted[unpack_message(string.sub(record, 2))[1]] = true end
  end
  local nodes = fetch_nodes(wanted)
  local dirty_nodes, dirty_pods, forgotten, replies = {}, {}, {}, {}

  local function release(uid)
    local record = unpack_message(string.sub(pods[uid], 2))
    local node = nodes[record[1]]
    if node then
      for i = 7, #record, 2 do
        if record[i + 1] > 0 then
          local at = slot(node, record[i])
          node[at + 2] = node[at + 2] - record[i + 1]
        end
      end
      dirty_nodes[record[1]] = true
    end
    pods[uid] = nil
  end

  local function adopt(uid, extra)
    if pods[uid] then release(uid) end
    local record, node = {}, nodes[extra[2]]
    if not node then
      node = {REMOVED_FLAG}
      nodes[extra[2]] = node
    end
    for i = 2, #extra do record[i - 1] = extra[i] end
    for i = 7, #record, 2 do -- what exceeds an exact number is not counted, neither here nor in the record
      local slot_at = ensure(node, record[i])
      record[i + 1] = math.min(record[i + 1], MAX - node[slot_at + 2])
      node[slot_at + 2] = node[slot_at + 2] + record[i + 1]
    end
    dirty_nodes[extra[2]] = true
    pods[uid] = extra[1] .. pack(record)
  end

  for i = 1, count do
    local code, uid = string.byte(codes, i) - 48, ids[i]
    local record, applied = pods[uid], 0
    if code == 1 then
      if record and string.byte(record) == RESERVED_BYTE then
        pods[uid] = '2' .. string.sub(record, 2)
        applied = 1
      end
    elseif code == 2 then
      if record and string.byte(record) ~= BOUND_BYTE then
        pods[uid] = '3' .. string.sub(record, 2)
        applied = 1
      end
    elseif code == 3 then
      if record then
        release(uid)
        applied = 1
      end
    elseif code == 4 then
      if record then
        local fields = unpack_message(string.sub(record, 2))
        fields[5], fields[6] = extras[i][1], extras[i][2]
        pods[uid] = string.sub(record, 1, 1) .. pack(fields)
        applied = 1
      end
    elseif code == 5 then
      forgotten[#forgotten + 1] = uid
      applied = 1
    elseif code == 6 then
      adopt(uid, extras[i])
      applied = 1
    elseif nodes[uid] and nodes[uid][1] ~= REMOVED_FLAG then
      local node, lines = nodes[uid], extras[i]
      for line = 1, #lines, 2 do node[ensure(node, lines[line]) + 3] = lines[line + 1] end
      dirty_nodes[uid] = true
      applied = 1
    end
    if applied == 1 and code ~= 5 and code ~= 7 then dirty_pods[uid] = true end
    replies[i] = applied
  end

  local into_open, into_bound, from_open, from_bound = {}, {}, {}, {}
  for uid in pairs(dirty_pods) do
    local record = pods[uid]
    local is = record and (string.byte(record) == BOUND_BYTE and BOUND or OPEN)
    local into = is == BOUND and into_bound or into_open
    if record then
      into[#into + 1] = uid
      into[#into + 1] = record
    end
    if was[uid] and was[uid] ~= is then
      local from = was[uid] == BOUND and from_bound or from_open
      from[#from + 1] = uid
    end
  end
  write_nodes(nodes, dirty_nodes)
  store(OPEN, into_open, 1, #into_open)
  store(BOUND, into_bound, 1, #into_bound)
  drop(OPEN, from_open)
  drop(BOUND, from_bound)
  drop(UNITS, forgotten)
  return finish(table.concat(replies))
end

-- ---------------------------------------------------------------------------------------------------- nodes
if operation == 'nodes' then
  -- ARGV[5]: msgpack {{node, flags, {rid, allocatable, foreign}*}*, removed nodes}
  local body, wanted, dirty = unpack_message(ARGV[5]), {}, {}
  for _, account in ipairs(body[1]) do wanted[account[1]] = true end
  for _, uid in ipairs(body[2]) do wanted[uid] = true end
  local nodes = fetch_nodes(wanted)
  for _, account in ipairs(body[1]) do
    local old = nodes[account[1]] or {0}
    local node = {account[2] == 0 and 0 or FROZEN_FLAG}
    for i = 3, #account, 3 do
      local at, n = slot(old, account[i]), #node
      node[n + 1], node[n + 2], node[n + 4] = account[i], account[i + 1], account[i + 2]
      node[n + 3] = at and old[at + 2] or 0
    end
    for i = 2, #old, 4 do
      if old[i + 2] ~= 0 and not slot(node, old[i]) then
        local n = #node
        node[n + 1], node[n + 2], node[n + 3], node[n + 4] = old[i], 0, old[i + 2], 0
      end
    end
    nodes[account[1]] = node
    dirty[account[1]] = true
  end
  for _, uid in ipairs(body[2]) do
    local node = nodes[uid]
    if node then
      node[1] = REMOVED_FLAG
      for i = 2, #node, 4 do node[i + 1], node[i + 3] = 0, 0 end
      dirty[uid] = true
    end
  end
  write_nodes(nodes, dirty)
  return finish('')
end

-- --------------------------------------------------------------------------------------------------- opened
if operation == 'opened' then
  redis.call('HSET', META, 'state', 'OPEN')
  return finish('')
end

return {'unknown operation'}
