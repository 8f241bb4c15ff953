"""Entries of a fleet's registry in Redis: their form, their signature, their scripts.

    {PREFIX}:fleet          ids, by the time at which their lease ends (Redis' clock)
    {PREFIX}:fleet:ID       "MAC JSON", which expires then; ID has 16 hexadecimal digits

Whoever can write to Redis can write any of it. An entry counts only if its MAC is right
under a key of the admin token, for this prefix and id: a verb sends the token to no
other address. An entry also has the time at which it was written: if it is copied and
written again later, it is stale. A reader gets printable ASCII within bounds.
"""

import hashlib
import hmac
import re
from typing import Annotated

import msgspec

# Programs in one answer, and bytes of an entry
MOST_ENTRIES = 1024
MOST_BYTES = 4096
# Hosts' clocks may differ by this
CLOCK_S = 60.0

_ID = re.compile(r"[0-9a-f]{16}")

Text = Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[ -~]*\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Number = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a program writes about itself.

    `url`: of its admin listener, as other hosts reach it; "": they do not, because of
    `unreachable`. `started` and `at` (when this was written) are seconds of the epoch,
    `lease` is in seconds. `revision` depends on configuration and policy, `generation`
    on the reloads since the start. `requests`: a second; `cpu`: of one CPU.
    """

    host: Text
    pid: Count
    version: Text
    url: Text
    unreachable: Text
    started: Number
    at: Number
    lease: Number
    state: Text
    revision: Text
    generation: Count
    workers: Count
    connections: Count
    requests: Number
    cpu: Number

    @property
    def name(self) -> str:
        return f"{self.host}/{self.pid}"


class EntryError(ValueError):
    """An entry that does not count: the reason."""


def entry_key(token: str) -> bytes:
    """The key of the signatures, from the admin token, which nobody can compute back
    unless the token can be guessed."""
    return hmac.digest(token.encode("utf-8", "surrogateescape"),
                       b"cutthrough fleet entry 1", hashlib.sha256)


def write_entry(key: bytes, prefix: str, id: str, entry: Entry) -> str:
    text = msgspec.json.encode(entry).decode()
    return f"{_sign(key, prefix, id, text)} {text}"


def read_entry(key: bytes, prefix: str, id: str, value: str, now: float) -> Entry:
    """Raises EntryError. `now`: seconds of the epoch."""
    mac, _, text = value.partition(" ")
    if not _ID.fullmatch(id) or not hmac.compare_digest(
            mac.encode(), _sign(key, prefix, id, text).encode()):
        raise EntryError("is not signed with this admin token")
    try:
        entry = msgspec.json.decode(text, type=Entry)
    except msgspec.DecodeError:
        raise EntryError("is of another version of cutthrough") from None
    if not -CLOCK_S <= now - entry.at <= entry.lease + CLOCK_S:
        raise EntryError(f"was written {now - entry.at:.0f} s ago by the clock of "
                         f"{entry.host}: its clock is wrong, or somebody wrote an old "
                         "entry again")
    return entry


def _sign(key: bytes, prefix: str, id: str, text: str) -> str:
    return hmac.new(key, f"{prefix}\0{id}\0{text}".encode(), hashlib.sha256).hexdigest()


def index_key(prefix: str) -> str:
    """In braces: all keys hash to one slot of a Redis cluster."""
    return f"{{{prefix}}}:fleet"


# KEYS: index, entry. ARGV: id, value, lease in ms. Returns how many leases run then,
# and how many had ended
WRITE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
local ended = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf',
                         string.format('%.0f', now))
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], 86400000)
return {redis.call('ZCARD', KEYS[1]), ended}
"""

# KEYS: index, entry. ARGV: id
REMOVE = """
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
"""

# KEYS: index. ARGV: most entries, most bytes of each. Returns id, value, and ms until
# the lease ends, of each
READ = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answer = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], string.format('%.0f', now),
                               '+inf', 'LIMIT', 0, ARGV[1])) do
    local key = KEYS[1] .. ':' .. id
    if #id == 16 and string.match(id, '^%x+$') then
        local length = redis.pcall('STRLEN', key)
        if type(length) == 'number' and length > 0 and length <= tonumber(ARGV[2]) then
            local value = redis.call('GET', key)
            if string.match(value, '^[ -~]+$') then
                answer[#answer + 1] = {id, value, redis.call('PTTL', key)}
            end
        end
    end
end
return answer
"""
