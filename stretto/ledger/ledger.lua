#!lua
-- The ledger's one script. KEYS: meta, accounts, open, bound, units (one hash tag). ARGV: operation, then as each says.
--
-- Order in every numbered call: stamp (generation, epoch, writer), then the writer's sequence (the last number again is
-- answered from the stored reply, any other but the next is a gap), then the operation, which decides everything before
-- its first write. Scripts are isolated but not transactional: an error after the first write would leave it in place,
-- so nothing after it can fail. Numbers are doubles: amounts and sums stay below 2^53.
--
-- Records
--   account  of a node, a volume, a device, a queue, …: struct of doubles: flags, {rid, capacity, used, foreign}*
--   pod      one character of state, then msgpack {node, unit ('' = the pod's own uid), attempt epoch, attempt number,
--            resourceVersion, binder epoch, HOLDINGS}; in `open` until it is BOUND, then in `bound`. HOLDINGS is
--            {rid, amount}* of the node's account, then of each other account {its uid, {rid, amount}*}
--   unit     msgpack {attempt epoch, attempt number} if that was granted, else with {kind, account, rid} behind
-- A removed account on which something is reserved stays as REMOVED until the last of it is freed, so that `used` is
-- always the sum of the pods' amounts.
local META, ACCOUNTS, OPEN, BOUND, UNITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local GRANTED, NO_FIT, SUPERSEDED, HELD, ACCOUNT_MISSING, FLAGGED = 1, 2, 3, 4, 5, 6
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

local function read_account(packed)
  local account = {struct.unpack(format_of(#packed / 8), packed)}
  account[#account] = nil -- the position behind the last value
  return account
end

local function pack_account(account) return struct.pack(format_of(#account), unpack(account)) end

local function slot(account, rid)
  for i = 2, #account, 4 do if account[i] == rid then return i end end
end

-- Takes room on `account` for `lines` {rid, amount, where its slot was last}*; or takes none and returns the rid that
-- does not fit. Nodes mostly list their resources alike, so that the last slot is mostly the right one.
local function take(account, lines)
  for i = 1, #lines, 3 do
    local rid, amount, at = lines[i], lines[i + 1], lines[i + 2]
    if amount > 0 then
      if account[at] ~= rid then
        at = slot(account, rid)
        if at then lines[i + 2] = at end
      end
      local sum = at and account[at + 2] + amount
      if not at or sum > MAX or sum + account[at + 3] > account[at + 1] then
        for back = 1, i - 3, 3 do
          if lines[back + 1] > 0 then
            local undo = slot(account, lines[back])
            account[undo + 2] = account[undo + 2] - lines[back + 1]
          end
        end
        return rid
      end
      account[at + 2] = sum
    end
  end
end

local function give_back(account, lines)
  for i = 1, #lines, 3 do
    if lines[i + 1] > 0 then
      local at = slot(account, lines[i])
      account[at + 2] = account[at + 2] - lines[i + 1]
    end
  end
end

local function ensure(account, rid)
  local at = slot(account, rid)
  if not at then
    at = #account + 1
    account[at], account[at + 1], account[at + 2], account[at + 3] = rid, 0, 0, 0
  end
  return at
end

local function unused(account)
  for i = 4, #account, 4 do if account[i] ~= 0 then return false end end
  return true
end

-- HSET and HDEL of the touched accounts of a table uid -> account or nil.
local function write_accounts(accounts, dirty)
  local args, gone = {}, {}
  for uid in pairs(dirty) do
    local account = accounts[uid]
    if account and (account[1] ~= REMOVED_FLAG or not unused(account)) then
      args[#args + 1] = uid
      args[#args + 1] = pack_account(account)
    else
      gone[#gone + 1] = uid
    end
  end
  store(ACCOUNTS, args, 1, #args)
  drop(ACCOUNTS, gone)
end

local function fetch_accounts(wanted)
  local uids, accounts = {}, {}
  for uid in pairs(wanted) do uids[#uids + 1] = uid end
  local found = fetch(ACCOUNTS, uids)
  for i = 1, #uids do if found[i] then accounts[uids[i]] = read_account(found[i]) end end
  return accounts
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
  if not intact then redis.call('UNLINK', ACCOUNTS, OPEN, BOUND, UNITS) end
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
  -- ARGV[5]: msgpack {units, members, accounts, then per unit: attempt epoch, number, members, their charges to other
  -- accounts, (node's account index, lines index) a member, (account index, lines index) a charge}. ARGV[6]: msgpack
  -- list of lines {rid, amount, 2 at first}*. From ARGV[7] on: account uids; (unit, its record if granted)*;
  -- (pod, its record)*, packed by the client, because this script holds up everybody.
  local numbers, all_lines = unpack_message(ARGV[5]), unpack_message(ARGV[6])
  local unit_count, member_count, account_count = numbers[1], numbers[2], numbers[3]
  local units_at = 7 + account_count
  local pods_at = units_at + 2 * unit_count
  local end_at = pods_at + 2 * member_count
  local account_ids, unit_ids, pod_ids = {}, {}, {}
  for i = 1, account_count do account_ids[i] = ARGV[6 + i] end
  for i = 1, unit_count do unit_ids[i] = ARGV[units_at + 2 * i - 2] end
  for i = 1, member_count do pod_ids[i] = ARGV[pods_at + 2 * i - 2] end
  local packed_accounts, units = fetch(ACCOUNTS, account_ids), fetch(UNITS, unit_ids)
  local open, bound = fetch(OPEN, pod_ids), fetch(BOUND, pod_ids)
  local accounts, dirty = {}, {}
  for i = 1, account_count do accounts[i] = packed_accounts[i] and read_account(packed_accounts[i]) end
  local new_units, new_pods = {}, {} -- of this batch: unit -> record, pod -> record
  local exceptions = {} -- {unit index, kind, account, rid or state, pod}*
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
      if not same or fields[1] ~= account_ids[numbers[at + 2 * (i - first)]] then return held(i, record) end
    end
    return GRANTED, '', 0, ''
  end

  -- What the unit is answered without looking at room: kind, account, rid or state, pod.
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

  -- Books `count` pairs (account, lines), all of them, or none and says why.
  local function misplaced(at, count)
    for i = at, at + 2 * count - 2, 2 do
      local account = accounts[numbers[i]]
      if not account or account[1] == REMOVED_FLAG then return ACCOUNT_MISSING, account_ids[numbers[i]], 0 end
      if account[1] ~= 0 then return FLAGGED, account_ids[numbers[i]], 0 end
    end
    for i = at, at + 2 * count - 2, 2 do
      local rid = take(accounts[numbers[i]], all_lines[numbers[i + 1]])
      if rid then
        for back = at, i - 2, 2 do give_back(accounts[numbers[back]], all_lines[numbers[back + 1]]) end
        return NO_FIT, account_ids[numbers[i]], rid
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
    local pairs_count = count + numbers[at + 3]
    at = at + 4
    local unit_arg = units_at + 2 * index - 2
    local kind, account, detail, pod = earlier(index, at, first, count, epoch, number)
    local record = nil
    if not kind then
      kind, account, detail = misplaced(at, pairs_count)
      record = kind and pack({epoch, number, kind, account, detail}) or ARGV[unit_arg + 1]
      new_units[unit_ids[index]] = record
    end
    if kind and granted_all then
      granted_all = false
      keep_range(index, first)
    end
    if kind then
      local n = #exceptions
      exceptions[n + 1], exceptions[n + 2], exceptions[n + 3] = index, kind, account
      exceptions[n + 4], exceptions[n + 5] = detail, pod or ''
    end
    if record and not granted_all then
      unit_args[#unit_args + 1] = ARGV[unit_arg]
      unit_args[#unit_args + 1] = record
    end
    if not kind then
      for i = first, first + count - 1 do
        new_pods[pod_ids[i]] = ARGV[pods_at + 2 * i - 1]
        if not granted_all then
          pod_args[#pod_args + 1] = pod_ids[i]
          pod_args[#pod_args + 1] = ARGV[pods_at + 2 * i - 1]
        end
      end
      for i = at, at + 2 * pairs_count - 2, 2 do dirty[numbers[i]] = true end
    end
    at = at + 2 * pairs_count
    first = first + count
  end

  local account_args = {}
  for index in pairs(dirty) do
    account_args[#account_args + 1] = account_ids[index]
    account_args[#account_args + 1] = pack_account(accounts[index])
  end
  store(ACCOUNTS, account_args, 1, #account_args)
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
  -- {state, node, unit, attempt epoch, number, resourceVersion, binder epoch, HOLDINGS}; foreign {rid, amount}*.
  -- From ARGV[7] on: their pod, unit or account.
  local codes, extras = ARGV[5], unpack_message(ARGV[6])
  local count = #codes
  local ids = {}
  for i = 1, count do ids[i] = ARGV[6 + i] end
  local open, bound = fetch(OPEN, ids), fetch(BOUND, ids)
  local pods, was, wanted = {}, {}, {} -- pod -> record; pod -> hash it is in; accounts to read

  -- The accounts of a record whose node is at `at`.
  local function want(record, at)
    wanted[record[at]] = true
    for i = at + 6, #record do if type(record[i]) == 'string' then wanted[record[i]] = true end end
  end

  for i = 1, count do
    local code, uid = string.byte(codes, i) - 48, ids[i]
    local record = open[i] or bound[i]
    if record and not was[uid] then
      pods[uid] = record
      was[uid] = open[i] and OPEN or BOUND
    end
    if code == 7 then wanted[uid] = true end
    if code == 6 then want(extras[i], 2) end
    if record and (code == 3 or code == 6) then want(unpack_message(string.sub(record, 2)), 1) end
  end
  local accounts = fetch_accounts(wanted)
  local dirty_accounts, dirty_pods, forgotten, replies = {}, {}, {}, {}

  local function release(uid)
    local record = unpack_message(string.sub(pods[uid], 2))
    local account = accounts[record[1]]
    dirty_accounts[record[1]] = true
    local i = 7
    while i <= #record do
      if type(record[i]) == 'string' then
        account = accounts[record[i]]
        dirty_accounts[record[i]] = true
        i = i + 1
      else
        if account and record[i + 1] > 0 then
          local at = slot(account, record[i])
          account[at + 2] = account[at + 2] - record[i + 1]
        end
        i = i + 2
      end
    end
    pods[uid] = nil
  end

  -- The account of a uid; one that nobody has set has no room.
  local function open_account(uid)
    local account = accounts[uid] or {REMOVED_FLAG}
    accounts[uid] = account
    dirty_accounts[uid] = true
    return account
  end

  local function adopt(uid, extra)
    if pods[uid] then release(uid) end
    local record, account = {}, open_account(extra[2])
    for i = 2, #extra do record[i - 1] = extra[i] end
    local i = 7
    while i <= #record do
      if type(record[i]) == 'string' then
        account = open_account(record[i])
        i = i + 1
      else -- what exceeds an exact number is not counted, neither here nor in the record
        local at = ensure(account, record[i])
        record[i + 1] = math.min(record[i + 1], MAX - account[at + 2])
        account[at + 2] = account[at + 2] + record[i + 1]
        i = i + 2
      end
    end
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
    elseif accounts[uid] and accounts[uid][1] ~= REMOVED_FLAG then
      local account, lines = accounts[uid], extras[i]
      for line = 1, #lines, 2 do account[ensure(account, lines[line]) + 3] = lines[line + 1] end
      dirty_accounts[uid] = true
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
  write_accounts(accounts, dirty_accounts)
  store(OPEN, into_open, 1, #into_open)
  store(BOUND, into_bound, 1, #into_bound)
  drop(OPEN, from_open)
  drop(BOUND, from_bound)
  drop(UNITS, forgotten)
  return finish(table.concat(replies))
end

-- ------------------------------------------------------------------------------------------------- accounts
if operation == 'accounts' then
  -- ARGV[5]: msgpack {{account, flags, {rid, capacity, foreign}*}*, removed accounts}
  local body, wanted, dirty = unpack_message(ARGV[5]), {}, {}
  for _, row in ipairs(body[1]) do wanted[row[1]] = true end
  for _, uid in ipairs(body[2]) do wanted[uid] = true end
  local accounts = fetch_accounts(wanted)
  for _, row in ipairs(body[1]) do
    local old = accounts[row[1]] or {0}
    local account = {row[2] == 0 and 0 or FROZEN_FLAG}
    for i = 3, #row, 3 do
      local at, n = slot(old, row[i]), #account
      account[n + 1], account[n + 2], account[n + 4] = row[i], row[i + 1], row[i + 2]
      account[n + 3] = at and old[at + 2] or 0
    end
    for i = 2, #old, 4 do
      if old[i + 2] ~= 0 and not slot(account, old[i]) then
        local n = #account
        account[n + 1], account[n + 2], account[n + 3], account[n + 4] = old[i], 0, old[i + 2], 0
      end
    end
    accounts[row[1]] = account
    dirty[row[1]] = true
  end
  for _, uid in ipairs(body[2]) do
    local account = accounts[uid]
    if account then
      account[1] = REMOVED_FLAG
      for i = 2, #account, 4 do account[i + 1], account[i + 3] = 0, 0 end
      dirty[uid] = true
    end
  end
  write_accounts(accounts, dirty)
  return finish('')
end

-- --------------------------------------------------------------------------------------------------- opened
if operation == 'opened' then
  redis.call('HSET', META, 'state', 'OPEN')
  return finish('')
end

return {'unknown operation'}
