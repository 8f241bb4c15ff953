# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How much a client may use: charged at each step of a connection.

    accept -> connections in all, of its address
    request -> connections, requests and quota of its user; a CONNECT also its tunnels;
               before the hook is called, and again if it names other limits
    turn of a relay -> bytes of the user, of the tunnel
    reload -> the new limits, for transfers under way

client.usage holds what was charged; Client._clear_request and close give it back, once
(R33). A user without limits in bytes costs the relay one test of `meter`. With limits in
bytes the pumps get an allowance. If it is used up and no more is available, the timer of
the origin's stream, which is free while a session owns it, starts the next turn. Nothing is
read meanwhile, so the kernel holds back the sender (R31).
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from cutthrough.net.address cimport Address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.pump cimport Pump
from cutthrough.net.relay cimport is_holding
from cutthrough.net.sysio cimport CAN_READ
from cutthrough.outcome cimport (
    CLIENT_LIMIT, FAULT_RESET, OK, OVERLOADED, QUOTA_EXCEEDED, RATE_LIMITED, USER_LIMIT)
from cutthrough.policy.ledger cimport (
    ENTERED, OVER_CLIENT, OVER_CONNECTIONS, OVER_QUOTA, OVER_RATE, OVER_TUNNELS, Entry)
from cutthrough.policy.limits cimport (
    SETTLE_US, Lane, Meter, Terms, are_equal, has_allowance, seconds_left_today)
from cutthrough.session.model.client cimport Client, address_of_connection
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.state cimport HALF_CLOSED, REQUEST

cdef enum:
    # Half of the rows of limited users: values without end leave the other half
    FIELD_PLACES = 32768


cdef int outcome_of(Entry entry) noexcept nogil:
    if entry == ENTERED:
        return OK
    if entry == OVER_CLIENT:
        return CLIENT_LIMIT
    if entry == OVER_CONNECTIONS or entry == OVER_TUNNELS:
        return USER_LIMIT
    if entry == OVER_RATE:
        return RATE_LIMITED
    if entry == OVER_QUOTA:
        return QUOTA_EXCEEDED
    return OVERLOADED                   # all connections are taken, or all rows


cdef int admit_connection(Client c) noexcept:
    c.relay.up.allowance = c.relay.down.allowance = INT64_MAX
    return outcome_of(c.context.limiter.enter(&c.usage, c.address.family, c.address.bytes))


cdef int charge(Client c) except -1:
    return OK if c.request.address_dependent else admit_user(c)


cdef int admit_user(Client c) except -1:
    return admit(c, terms_now(c))


cdef int admit_with_faults(Client c, int64_t bandwidth, int64_t most_bytes) except -1:
    return admit(c, c.context.limiter.with_faults(terms_now(c), bandwidth, most_bytes))


cdef Terms terms_now(Client c):
    cdef Terms terms = c.context.limiter.terms_of(c.account.name, named_limits(c))
    if c.terms is None or not (c.terms.bandwidth or c.terms.most_bytes):
        return terms
    return c.context.limiter.with_faults(terms, c.terms.bandwidth, c.terms.most_bytes)


cdef int admit(Client c, Terms terms) except -1:
    if c.terms is not None:             # charged before the hook was called
        if terms is c.terms:
            return OK
        c.context.limiter.uncharge(&c.usage, c.terms, &c.relay.up.allowance,
                                   &c.relay.down.allowance, c.poller.now_us)
    c.terms = terms
    if c.terms is None and c.usage.holding.user_row == 0:
        return OK                       # the usual case: no limits, and none before
    cdef uint32_t retry_s = 0
    if c.context.rate_queue is not None and terms is not None:
        c.request.retry_s = c.context.rate_queue.wait_s(c, (terms.name, counted_of(c, terms)))
        if c.request.retry_s:
            return RATE_LIMITED
    cdef int outcome = outcome_of(c.context.limiter.charge(
        &c.usage, c.terms, counted_of(c, c.terms), c.request.is_tunnel, c.poller.now_us, &retry_s))
    if outcome == USER_LIMIT and c.terms.plain.per == "client":
        outcome = CLIENT_LIMIT
    c.request.retry_s = retry_s
    if c.usage.meter != NULL:
        c.relay.up.allowance = c.relay.down.allowance = 0
    return outcome


cdef int admit_again(Client c) except -1:
    cdef Terms terms = terms_now(c)
    return OK if terms is c.terms else admit(c, terms)


cdef int move_row(Client c) except -1:
    """Taken over: its row is another's if the limits here count others together, or none."""
    return change_terms(c, c.terms)


cdef int readmit_user(Client c) except -1:
    cdef const Address *caller = caller_of(c)
    c.terms = c.context.limiter.terms_of(c.account.name, named_limits(c))
    cdef int outcome = outcome_of(c.context.limiter.adopt(
        &c.usage, c.terms, counted_of(c, c.terms), c.request.is_tunnel, caller.family,
        caller.bytes, c.poller.now_us))
    c.relay.up.allowance = c.relay.down.allowance = (
        0 if c.usage.meter != NULL else INT64_MAX)
    return outcome


def renew_limits(Context context):
    """Limits that a reload has changed hold for transfers under way, from their next turn."""
    cdef Client c = <Client>context.newest
    while c is not None:
        if c.account is not None and REQUEST <= c.state <= HALF_CLOSED:
            renew(c)
        c = c.older


cdef int renew_meanwhile(Client c) except -1:
    return 0 if c.snapshot is c.context.snapshot else renew(c)


cdef int renew(Client c) except -1:
    cdef Terms newest = terms_now(c)
    if are_equal(newest, c.terms):
        return 0
    change_terms(c, newest)
    return c.poller.call_again(c)


cdef int change_terms(Client c, Terms newest) except -1:
    cdef Entry entry
    cdef const Address *caller = caller_of(c)
    c.context.limiter.end_meter(
        &c.usage, c.terms, &c.relay.up.allowance, &c.relay.down.allowance, c.poller.now_us)
    entry = c.context.limiter.change(
        &c.usage, newest, counted_of(c, newest), c.request.is_tunnel, caller.family,
        caller.bytes, c.poller.now_us)
    c.terms = newest
    c.relay.up.allowance = c.relay.down.allowance = (
        0 if c.usage.meter != NULL else INT64_MAX)
    return outcome_of(entry)


cdef int take_limits(Client c, object name, dict left) except -1:
    cdef Terms terms = c.context.limiter.terms_of(c.account.name, name)
    cdef Meter *meter = c.usage.meter
    cdef int outcome
    if are_equal(terms, c.terms):
        return OK
    if meter != NULL:
        left[c.terms.name] = (tokens_left(&meter.up, &c.relay.up), meter.up.tokens_us,
                              tokens_left(&meter.down, &c.relay.down), meter.down.tokens_us)
    outcome = change_terms(c, terms)
    meter = c.usage.meter
    if meter != NULL and terms.name in left:
        meter.up.tokens, meter.up.tokens_us, meter.down.tokens, meter.down.tokens_us = (
            left[terms.name])
    return outcome


cdef inline double tokens_left(const Lane *lane, const Pump *pump) noexcept nogil:
    return lane.tokens - (lane.granted - pump.allowance)


cdef const Address *caller_of(Client c) noexcept:
    if c.entrance is None:              # not one expression: Cython's temporary is not const
        return &c.address
    return address_of_connection(c)


cdef bytes counted_of(Client c, Terms terms):
    if terms is None or terms.per_user:
        return c.account.name
    if terms.plain.per.startswith("field:"):
        return place_of_field(c, terms)
    return terms.subject(c.address.family, c.address.bytes)


cdef bytes place_of_field(Client c, Terms terms):
    """The place of a field's value, whose keyed hash tells it: values of no end have so many rows,
    and no client can choose another's."""
    cdef uint64_t tag[2]
    cdef bytes name = terms.plain.per.removeprefix("field:").encode()
    cdef bytes text = b"%b\0%b" % ((terms.name or "").encode(), values_in_head(c, name))
    c.context.limiter.ledger.tag_of(<const unsigned char *><const char *>text, len(text), tag)
    return b"\0field %d" % (tag[0] % FIELD_PLACES)


cdef bytes values_in_head(Client c, bytes name):
    """b"": it has none, or the request is a tunnel's, whose head is not kept."""
    if c.head == NULL:
        return b""
    lines = bytes_of(c.head)[:c.head.end].split(b"\r\n")
    pairs = [line.partition(b":") for line in lines[1:]]
    return b", ".join([value.strip() for key, _, value in pairs if key.lower() == name])


cdef object named_limits(Client c):
    """The limits that the hook named, else those of the rule, of a newer policy's if it has been
    asked; None: the user's own."""
    if c.extras.decision is not None and c.extras.decision.limits:
        return c.extras.decision.limits
    if c.extras.newer_limits is not None:
        return c.extras.newer_limits[0]
    return limits_of_rule(c)


cdef object limits_of_rule(Client c):
    """None: it names none, or is not known yet."""
    if c.request.address_dependent or c.request.needs_opening or c.snapshot.acl is None:
        return None
    return c.snapshot.acl.limits_of(c.request.rule)


cdef int admit_tunnel(Client c) noexcept:
    if c.terms is None:
        return OK
    return outcome_of(c.context.limiter.ledger.charge_tunnel(
        &c.usage.holding, &c.terms.limits))


cdef bint before_turn(Client c) noexcept:
    cdef int64_t now_us = c.poller.now_us
    cdef bint is_due = c.terms.limits.bytes_per_day != 0 and (
        now_us - c.usage.meter.settled_us >= SETTLE_US)
    if is_due:
        c.usage.meter.settled_us = now_us
    if (refill(c, &c.relay.up, &c.usage.meter.up, is_due)
            and refill(c, &c.relay.down, &c.usage.meter.down, is_due)):
        if c.terms.most_bytes == 0:
            return True
        clip(c, &c.relay.up, &c.usage.meter.up)
        clip(c, &c.relay.down, &c.usage.meter.down)
        return not is_spent(c)
    c.request.retry_s = seconds_left_today()
    return False


cdef int outcome_of_meter(Client c) noexcept:
    return FAULT_RESET if is_spent(c) else QUOTA_EXCEEDED


cdef size_t may_pass(Client c, size_t head_len, size_t n) noexcept:
    cdef int64_t left = c.terms.most_bytes - <int64_t>(c.relay.down.moved + head_len)
    if c.terms.most_bytes == 0 or <int64_t>n <= left:
        return n
    c.request.marks_origin = True           # the others are lost
    return <size_t>max(0, left)


cdef bint is_spent(Client c) noexcept:
    """Has a direction moved all bytes that its faults leave it?"""
    return c.terms.most_bytes != 0 and (
        is_over(c, &c.relay.up) or is_over(c, &c.relay.down))


cdef bint is_over(Client c, Pump *pump) noexcept:
    return <int64_t>pump.moved >= c.terms.most_bytes and not is_holding(pump)


cdef void clip(Client c, Pump *pump, Lane *lane) noexcept:
    """Bytes that are held count: they have been read."""
    cdef int64_t may = max(0, c.terms.most_bytes - <int64_t>pump.moved)
    if is_holding(pump):
        may = 0
    if pump.allowance > may:
        lane.granted -= pump.allowance - may
        pump.allowance = may


cdef bint refill(Client c, Pump *pump, Lane *lane, bint is_due) noexcept:
    # A pump with nothing to read takes nothing from the user's other relays
    if not is_due and (has_allowance(lane, c.terms, pump.allowance, c.poller.now_us)
                       or not (lane.is_awaited or may_read(pump))):
        return True
    return c.context.limiter.refill(&c.usage, lane, c.terms, c.request.is_tunnel,
                                    &pump.allowance, c.poller.now_us)


cdef inline bint may_read(const Pump *pump) noexcept nogil:
    return pump.source != NULL and pump.source.ready & CAN_READ


cdef int after_turn(Client c) except -1:
    if is_spent(c):
        return c.poller.call_again(c)       # the next turn ends the relay
    cdef int64_t wait_us = SETTLE_US if c.terms.limits.bytes_per_day else INT64_MAX
    wait_us = min(wait_us, wait_of(c, &c.relay.up, &c.usage.meter.up))
    wait_us = min(wait_us, wait_of(c, &c.relay.down, &c.usage.meter.down))
    if wait_us == 0:
        return c.poller.call_again(c)
    if wait_us == INT64_MAX:
        return 0
    if c.origin is None:
        return <int>max(1, wait_us // 1000)
    return c.origin.set_deadline(max(1, wait_us // 1000))


cdef bint is_paced(Client c) noexcept:
    return c.usage.meter != NULL and (waits(&c.relay.up, &c.usage.meter.up)
                                      or waits(&c.relay.down, &c.usage.meter.down))


cdef bint waits(Pump *pump, const Lane *lane) noexcept:
    """Does it wait for its allowance alone?"""
    return pump.allowance <= 0 and not is_holding(pump) and (lane.is_awaited or (
        may_read(pump) and not pump.eof and pump.left != 0))


cdef int64_t wait_of(Client c, Pump *pump, Lane *lane) noexcept:
    """How long a pump that its allowance held up has to wait; 0: no longer."""
    if not waits(pump, lane):
        return INT64_MAX
    # Was it granted nothing at the start of this turn, or has it just used up its grant?
    if lane.granted > 0 and not refill(c, pump, lane, False):
        return 0                        # the quota: the next turn ends the relay
    if pump.allowance > 0:
        return 0
    return max(1, lane.wait_us)
