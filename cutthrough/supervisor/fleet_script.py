"""The script that Redis runs as one step of a fleet, its arguments and its answer.

It adds what changed in one instance to sums over all instances, and returns the use of
the others: the sums without this instance's share. A user costs the same however many
instances there are.

    {PREFIX}:2:sums            ID -> "connections tunnels spent": over all instances.
                               Beside the users: epoch, a random word that names the
                               other keys; version, the number of changes; clock, at;
                               day, before, older: versions as days began
    {PREFIX}:2:EPOCH:alive     instances, by the clock at which they expire
    {PREFIX}:2:EPOCH:of:NAME   ID -> "connections tunnels spent day bytes before": the
                               share of an instance, with bytes of `day` and of the day
                               before. Behind it, if its clock has leapt over days, the
                               last three for where it was: it may be set back there.
                               #: its session and the number of its last step
    {PREFIX}:2:EPOCH:day:DAY   ID -> bytes of that day, those of gone instances too
    {PREFIX}:2:EPOCH:feed      ID, by the version of its last change

ID is a hash of the user's name. An instance sends totals, and the script adds their
difference to its share, so that a step that is repeated counts once. Whoever meets an
expired instance subtracts its share, field by field, and its bytes stay. Because it
loses its number by that, it begins a new session if it comes back; so does an instance
whose number is higher than Redis knows, because then Redis has lost a step.

The clock stands still while no instance reaches Redis. So a Redis that was away for a
while does not take all of them for dead.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from redis import exceptions

# Users published and users received in one step
BATCH = 128
# Bounds of what the answer's numbers may be: those of RemoteUsage.book
COUNT_MAX, TOTAL_MAX = 2**32 - 1, 2**53

SCRIPT = """
local sums, me, session = KEYS[1], ARGV[1], ARGV[2]
local number, position = tonumber(ARGV[3]), ARGV[4]
local expiry, day, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local leaves, word = ARGV[8] == '1', ARGV[9]
local two_days = 172800000
local format, match, max, floor = string.format, string.match, math.max, math.floor

local function whole(text)
    return text and #text < 16 and tonumber(match(text, '^%d+$')) or 0
end

local function counts(text)
    local c, t, spent = match(text or '', '^(%d+) (%d+) (%d+)$')
    if not c then return 0, 0, 0 end
    return tonumber(c), tonumber(t), tonumber(spent)
end

local function parts(text)
    local c, t, spent, on, bytes, before, far =
        match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)([ %d]*)$')
    if not c then return 0, 0, 0, 0, 0, 0, '' end
    return tonumber(c), tonumber(t), tonumber(spent),
        tonumber(on), tonumber(bytes), tonumber(before), far
end

-- The bytes as of `day`, and those of where the clock was
local function days(day, on, bytes, before, far)
    local far_on, far_bytes, far_before = match(far, '^ (%d+) (%d+) (%d+)$')
    if on > 0 and math.abs(on - day) > 1 then
        if bytes + before > 0 then far = format(' %d %d %d', on, bytes, before) end
        on, bytes, before = 0, 0, 0
        if far_on and math.abs(far_on - day) < 2 then
            on, bytes, before = tonumber(far_on), tonumber(far_bytes),
                tonumber(far_before)
        end
    end
    if on ~= day and on ~= day + 1 then
        before = on == day - 1 and bytes or 0
        on, bytes = day, 0
    end
    return on, bytes, before, far
end

local function put(key, pairs)
    if #pairs > 0 then redis.call('HSET', key, unpack(pairs)) end
end

local function add(list, ...)
    for _, item in ipairs({...}) do list[#list + 1] = item end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local head = redis.call('HMGET', sums, 'epoch', 'version', 'clock', 'at', 'day',
                        'before', 'older')
local epoch, version = head[1] or word, whole(head[2])
local clock = whole(head[3])
    + max(0, math.min(now - (head[4] and whole(head[4]) or now), floor(expiry / 4)))
local of = string.sub(sums, 1, -5) .. epoch .. ':'
local alive, feed, mine = of .. 'alive', of .. 'feed', of .. 'of:' .. me
local moved = of .. 'day:' .. ARGV[6]

-- First a write that needs no memory: after it a full Redis takes the others, too
redis.call('PEXPIRE', sums, two_days)
local state = redis.call('HGET', mine, '#') or ''
if number > 0 then
    local n = whole(match(state, '^' .. session .. ' (%d+)$'))
    if n < number then return {0, position, 1, 0, ''} end
    number = n
    redis.call('ZADD', alive, clock + expiry, me)
elseif redis.call('ZSCORE', alive, me) then
    redis.call('ZADD', alive, 0, me)       -- the share of a former session goes first
end

local news, changes = {}, {}
local function change(id, c, t, spent)
    version = version + 1
    local n = #changes
    changes[n + 1], changes[n + 2] = id, format(
        '%d %d %d', max(0, c), max(0, t), max(0, spent))
    news[n + 1], news[n + 2] = version, id
end
local function save()
    add(changes, 'epoch', epoch, 'version', version, 'clock', clock,
        'at', format('%d', now))
    put(sums, changes)
    if #news > 0 then redis.call('ZADD', feed, unpack(news)) end
    news, changes = {}, {}
end

-- Of the dead, some users a step
local room = 512
for _, name in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', clock,
                                 'LIMIT', 0, 16)) do
    if room <= 0 then break end
    local key = of .. 'of:' .. name
    local cursor = match(redis.call('HGET', key, '#') or '', '^dead (%d+)$')
    local scanned = redis.call('HSCAN', key, cursor or '0', 'COUNT', room)
    local ids, shares, kept, empty = {}, {}, {}, {}
    for i = 1, #scanned[2], 2 do
        local id = scanned[2][i]
        local c, t, spent, on, bytes, before, far = parts(scanned[2][i + 1])
        if c + t + spent > 0 then
            add(ids, id)
            add(shares, {c, t, spent})
        end
        if bytes + before > 0 or far ~= '' then
            add(kept, id, format('0 0 0 %d %d %d', on, bytes, before) .. far)
        elseif id ~= '#' then
            add(empty, id)
        end
    end
    if #ids > 0 then
        local all = redis.call('HMGET', sums, unpack(ids))
        for i, id in ipairs(ids) do
            local c, t, spent = counts(all[i])
            change(id, c - shares[i][1], t - shares[i][2], spent - shares[i][3])
        end
        save()
    end
    put(key, kept)
    if #empty > 0 then redis.call('HDEL', key, unpack(empty)) end
    if scanned[1] == '0' then
        redis.call('HDEL', key, '#')
        redis.call('ZREM', alive, name)
    else
        redis.call('HSET', key, '#', 'dead ' .. scanned[1])
    end
    room = room - 1 - #scanned[2] / 2
end

if number == 0 then
    local rest = redis.call('ZSCORE', alive, me) and 1 or 0
    if leaves or rest == 1 then
        save()
        return {0, position, rest, 0, ''}
    end
    redis.call('ZADD', alive, clock + expiry, me)
end
number = number + 1

local ids, usage = {}, {}
for i = 10, #ARGV, 2 do
    ids[#ids + 1] = ARGV[i]
    usage[ARGV[i]] = ARGV[i + 1]
end
local heard = redis.call('ZRANGEBYSCORE', feed, '(' .. position, '+inf', 'WITHSCORES',
                         'LIMIT', 0, limit)
for i = 1, #heard, 2 do
    position = heard[i + 1]
    local id = heard[i]
    if usage[id] == nil and #id == 32 and match(id, '^%x+$') then ids[#ids + 1] = id end
end

local own, bytes_now, empty = {'#', session .. ' ' .. number}, {}, {}
local answer = {}
if #ids > 0 then
    local all = redis.call('HMGET', sums, unpack(ids))
    local shares = redis.call('HMGET', mine, unpack(ids))
    local today = redis.call('HMGET', moved, unpack(ids))
    for i, id in ipairs(ids) do
        local c, t, spent = counts(all[i])
        local my_c, my_t, my_spent, on, bytes, before, far = parts(shares[i])
        on, bytes, before, far = days(day, on, bytes, before, far)
        local sum, counted = whole(today[i]), on == day and bytes or before
        if usage[id] then
            local new_c, new_t, new_spent, new_bytes =
                match(usage[id], '^(%d+) (%d+) (%d+) (%d+)$')
            new_c, new_t, new_spent, new_bytes = tonumber(new_c), tonumber(new_t),
                tonumber(new_spent), tonumber(new_bytes)
            local more = max(0, new_bytes - counted)
            if more > 0 then
                counted, sum = new_bytes, sum + more
                if on == day then bytes = counted else before = counted end
                bytes_now[#bytes_now + 1] = id
                bytes_now[#bytes_now + 1] = format('%d', sum)
            end
            local text = format('%d %d %d %d %d %d', new_c, new_t, new_spent, on, bytes,
                                before) .. far
            if far == '' and new_c + new_t + new_spent + bytes + before == 0 then
                if shares[i] then empty[#empty + 1] = id end
            elseif text ~= shares[i] then
                own[#own + 1] = id
                own[#own + 1] = text
            end
            if more > 0 or new_c ~= my_c or new_t ~= my_t or new_spent ~= my_spent then
                c, t, spent = c + new_c - my_c, t + new_t - my_t,
                    spent + new_spent - my_spent
                change(id, c, t, spent)
            end
            my_c, my_t, my_spent = new_c, new_t, new_spent
        end
        answer[i] = format('%s %d %d %d %d', id, max(0, c - my_c),
            max(0, t - my_t), max(0, sum - counted),
            max(0, spent - my_spent))
    end
end
put(mine, own)
if #empty > 0 then redis.call('HDEL', mine, unpack(empty)) end
if #bytes_now > 0 then
    put(moved, bytes_now)
    redis.call('PEXPIRE', moved, two_days)
end

-- Who has not changed for a day, and holds nothing, is forgotten
local date = floor(now / 86400000)
local older = whole(head[7])
if date ~= whole(head[5]) then
    older = whole(head[6])
    add(changes, 'day', date, 'before', version, 'older', older)
end
save()
local idle = redis.call('ZRANGEBYSCORE', feed, '-inf', older, 'LIMIT', 0, 16)
if #idle > 0 then
    local all = redis.call('HMGET', sums, unpack(idle))
    for i, id in ipairs(idle) do
        local c, t, spent = counts(all[i])
        if c + t + spent > 0 then
            change(id, c, t, spent)
        else
            redis.call('HDEL', sums, id)
            redis.call('ZREM', feed, id)
        end
    end
    save()
end
redis.call('PEXPIRE', sums, two_days)
redis.call('PEXPIRE', alive, two_days)
redis.call('PEXPIRE', feed, two_days)
redis.call('PEXPIRE', mine, 1.5 * two_days)  -- a share outlives its sums

local target = version
if #heard < 2 * limit then target, position = 0, format('%d', version) end
local instances = redis.call('ZCOUNT', alive, '(' .. clock, '+inf')
return {number, position, target, instances, table.concat(answer, ' ')}
"""


class Use(NamedTuple):
    """A user's use of the other instances: connections and tunnels now, bytes of the
    day, tokens of requests in total."""

    id: str
    connections: int
    tunnels: int
    moved: int
    spent: int


class Answer(NamedTuple):
    """`number`: of this step; 0: no session, so that nothing was published. `position`:
    of the feed, for the next step. `target`: 0, or if there is more to receive, the
    position of the last change now; without a session, 1 if it cannot begin yet."""

    number: int
    position: int
    target: int
    instances: int
    uses: list[Use]


def key_of(prefix: str) -> str:
    """The script's key. In braces: all keys hash to one slot of a Redis cluster."""
    return f"{{{prefix}}}:2:sums"


class Step(NamedTuple):
    """An instance's next step. `number`: of the last one that was answered in this
    session, 0 to begin it; `position`: in the feed, of what it has received."""

    instance: str
    session: str
    number: int
    position: int
    expiry_ms: int
    day: int
    limit: int = BATCH                   # of uses that it receives
    is_leaving: bool = False


def arguments(step: Step, usage: Mapping[str, str], word: str) -> list[str | int]:
    """The script's arguments. `usage`: as of `usage_of`, by user; `word`: a random one,
    for a new epoch."""
    return [*step[:-1], int(step.is_leaving), word,
            *(part for pair in usage.items() for part in pair)]


def usage_of(connections: int, tunnels: int, spent: int, moved: int) -> str:
    """Usage in this instance: now, tokens in this session, bytes of the day."""
    return f"{connections} {tunnels} {spent} {max(moved, 0)}"


def parse_answer(reply: Any) -> Answer:
    """Raises InvalidResponse. Numbers out of range are cut to it: other programs that
    may write to this Redis must not stop this one."""
    try:
        number, position, target, instances, text = reply
        words = text.split(" ") if text else []
        uses = [Use(id, _cut(c, COUNT_MAX), _cut(t, COUNT_MAX), _cut(moved, TOTAL_MAX),
                    _cut(spent, TOTAL_MAX))
                for id, c, t, moved, spent in zip(*[iter(words)] * 5, strict=True)]
        return Answer(int(number), int(position), int(target), int(instances), uses)
    except (AttributeError, TypeError, ValueError):
        raise exceptions.InvalidResponse("not an answer of the script") from None


def _cut(text: str, most: int) -> int:
    return min(max(int(text), 0), most)
