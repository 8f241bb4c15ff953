# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The dialogue with a connected parent, up to the destination's first byte, and the destination in
its words.

    dialled ─> PROXY header ─> TLS ─> first message ─> answer ─> … ─> next parent ─> …
           ─> destination

A request in absolute form has no message to its last parent, nor one in origin form to its named
origin: it goes there itself.

The mirror of session.stages.runner: it owns the socket and the bytes, and knows no protocol; the steps
are wire.parent's. Nothing of the client's is sent before the last answer is whole (R3, R45).

Answers are peeked, and only their own bytes are taken from the socket. So nothing is kept of an
answer that is not whole, and the bytes behind the last one are the relay's, which may splice
them.
"""

cdef extern from "<errno.h>" nogil:
    int EPROTO

from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset
from cutthrough.net cimport linux
from cutthrough.net.address cimport UNIX_CALLER, Address, from_sockaddr, print_address
from cutthrough.net.buffers cimport HEAD_ROOM, bytes_of, head_scratch, scratch
from cutthrough.net.linux cimport sockaddr_storage
from cutthrough.net.multiplex cimport with_descriptor
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, PEER_DONE, clock_us, read_own_name, skip_peeked, try_peek, try_send)
from cutthrough.net.transport cimport (
    HANDSHAKE_CLOSED, HANDSHAKE_DENIED, HANDSHAKE_DONE, HANDSHAKE_MORE, HANDSHAKE_RESET,
    REFUSES_CERTIFICATE, TLS, WANTS_CERTIFICATE, Agreed, Socket, open_transport, transport_of)
from cutthrough.outcome cimport (
    OK, PARENT_CERTIFICATE, PARENT_CLOSED, PARENT_HANDSHAKE, PARENT_REFUSED)
from cutthrough.policy.hop cimport HOP_FORWARD, HOP_NAMED_ORIGIN
from cutthrough.policy.parents cimport NO_TLS, Parent
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.flight_recorder cimport E_ANSWER, E_SECURED, E_UP, note
from cutthrough.session.model.passage cimport Passage
from cutthrough.session.model.request cimport Request
from cutthrough.wire.absolute cimport build_absolute_head
from cutthrough.wire.authority cimport HOST_IPV4, HOST_IPV6, HOST_NAME, Target
from cutthrough.wire.connect cimport Value
from cutthrough.wire.parent cimport (
    MOST_HEARD, MOST_SAID, SAY_NOTHING, Errand, Step, first_step, hear, say)
from cutthrough.wire.rewrite cimport Span
from cutthrough.wire.proxy_header cimport ProxyHeader, build_proxy_header
from cutthrough.wire.socks_client cimport Login


cdef bint is_resolved_there(Client c) except -1:
    return c.extras.passage is not None and c.extras.passage.parent is not None and (
        c.request.for_origin or (c.extras.passage.parent.resolves and not c.request.narrowed
                                 and c.request.host_kind == HOST_NAME))


cdef int set_target(Client c, Passage p, const Address *checked) except -1:
    cdef Target *target = &p.target
    memset(&p.checked, 0, sizeof(Address))
    memset(target, 0, sizeof(Target))
    target.port = c.request.port
    if checked == NULL or is_resolved_there(c) or c.request.hop.kind == HOP_FORWARD:
        target.host_kind = c.request.host_kind
        target.host_len = <uint16_t>(len(c.key) - 2)
        memcpy(target.host, <char *>c.key, target.host_len)
        if checked == NULL or target.host_kind == HOST_NAME:
            return 0
    p.checked = checked[0]
    p.checked.port = c.request.port
    target.host_kind = HOST_IPV4 if checked.family == 4 else HOST_IPV6
    target.host_len = <uint16_t>print_address(checked, target.host)
    memcpy(target.address, checked.bytes, 16)
    return 0


cdef const char *head_for_parent(Client c, size_t *n) except? NULL:
    cdef Passage p = c.extras.passage
    cdef bytes basic = p.parent.basic
    cdef Request *r = &c.request
    if p.parent.passes_credentials and p.credentials is not None:
        basic = p.credentials
    set_target(c, p, NULL)
    n[0] = build_absolute_head(
        head_scratch(), HEAD_ROOM, bytes_of(c.head), c.head.end, Span(r.path_at, r.path_len),
        &p.target, Value(NULL, 0) if basic is None else Value(basic, len(basic)))
    return head_scratch() if n[0] else NULL


cdef int begin_dialogue(Client c) except -2:
    c.extras.passage.leg = 0
    return begin_leg(c)


cdef int begin_leg(Client c) except -2:
    cdef Passage p = c.extras.passage
    cdef Parent parent = p.chain[p.leg]
    cdef int outcome
    p.step = first_step(parent.protocol)
    if c.request.hop.kind in (HOP_FORWARD, HOP_NAMED_ORIGIN) and p.leg + 1 == len(p.chain):
        p.step = SAY_NOTHING            # the request itself is what is sent to it
    if parent.tls == NO_TLS or c.origin.sock.kind == TLS:       # done, by session.model.standby
        return open_leg(c, parent, parent.proxy_protocol)
    if parent.proxy_protocol:
        outcome = send_up(c, put_proxy_header(c, head_scratch(), parent.proxy_protocol))
        if outcome != OK:
            return outcome
    if open_transport(&c.origin.sock, TLS, parent.tls, parent.server_name) < 0:
        return PARENT_HANDSHAKE         # no context, or no memory
    p.is_shaking = True
    p.shaking_us = clock_us()
    return go_on_talking(c)


cdef int shake(Client c) except -2:
    """One attempt at the TLS handshake. An Outcome, or STILL_TALKING."""
    cdef int result = transport_of(&c.origin.sock).handshake(&c.origin.sock)
    cdef Agreed agreed
    if result == HANDSHAKE_MORE:
        return STILL_TALKING
    if result == HANDSHAKE_DONE:
        c.extras.passage.tls_us += <uint32_t>max(<int64_t>1, clock_us() - c.extras.passage.shaking_us)
        agreed.resumed = False
        transport_of(&c.origin.sock).describe(&c.origin.sock, &agreed)
        note(c.context.recorder, <void *>c, c.poller.now_us, E_SECURED, 0, agreed.resumed)
        if c.context.observer is not None and c.request.hop.kind == HOP_NAMED_ORIGIN:
            c.context.observer.on_origin_tls(c)
        return OK
    if result == -HANDSHAKE_DENIED:
        return PARENT_CERTIFICATE
    return PARENT_CLOSED if result == -HANDSHAKE_CLOSED or result == -HANDSHAKE_RESET else (
        PARENT_HANDSHAKE)


cdef int open_leg(Client c, Parent parent, int proxy_protocol) except -2:
    cdef int outcome = speak(c, parent, proxy_protocol)
    if outcome != OK or c.extras.passage.step == SAY_NOTHING:
        return outcome
    return go_on_talking(c)


cdef int go_on_talking(Client c) except -2:
    cdef Passage p = c.extras.passage
    cdef Parent parent = p.chain[p.leg]
    cdef Socket *sock = &c.origin.sock
    cdef char *data = scratch()
    cdef Errand errand
    cdef Step step
    cdef ssize_t n
    cdef int used, outcome
    if p.is_shaking:
        outcome = shake(c)
        if outcome != OK:
            return outcome
        p.is_shaking = False
        return open_leg(c, parent, 0)
    while sock.ready & CAN_READ:
        n = try_peek(sock, data, MOST_HEARD)
        if n == -linux.EAGAIN:
            return STILL_TALKING
        if n <= 0:                          # EPROTO: an alert, of TLS 1.3 for one
            return PARENT_HANDSHAKE if -n in (
                EPROTO, WANTS_CERTIFICATE, REFUSES_CERTIFICATE) else PARENT_CLOSED
        note(c.context.recorder, <void *>c, c.poller.now_us, E_ANSWER, 0, n)
        fill(&errand, p, parent)
        step = <Step>p.step
        used = hear(&step, &errand, data, n, &p.code)
        if used < 0:
            return -used
        if used == 0:                       # an answer is at most what one look shows
            return PARENT_CLOSED if sock.ready & (PEER_DONE | BROKEN) else STILL_TALKING
        if skip_peeked(sock, used) != used:
            return PARENT_CLOSED
        p.step = step
        if step == SAY_NOTHING:
            p.leg += 1
            return OK if p.leg == len(p.chain) else begin_leg(c)
        outcome = speak(c, parent, 0)
        if outcome != OK:
            return outcome
    return STILL_TALKING


cdef int speak(Client c, Parent parent, int proxy_protocol) except -2:
    """Sends the step's message. An Outcome."""
    cdef char *out = head_scratch()
    cdef Errand errand
    cdef size_t before = 0
    cdef size_t n = 0
    if proxy_protocol:
        before = put_proxy_header(c, out, proxy_protocol)
    if c.extras.passage.step != SAY_NOTHING:
        fill(&errand, c.extras.passage, parent)
        n = say(<Step>c.extras.passage.step, &errand, out + before, MOST_SAID)
        if n == 0:
            return PARENT_REFUSED       # its protocol has no such destination
    return send_up(c, before + n) if before + n else OK


cdef int send_up(Client c, size_t n) noexcept:
    """Sends what is in head_scratch(). An Outcome."""
    note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, n)
    # A new connection takes these few bytes at once, or it is broken
    return OK if try_send(&c.origin.sock, head_scratch(), n) == <ssize_t>n else PARENT_CLOSED


cdef int fill(Errand *e, Passage p, Parent parent) except -1:
    cdef bint is_last = p.leg + 1 == len(p.chain)
    cdef bytes basic = parent.basic
    if is_last:
        e.target = &p.target
    else:
        e.target = &(<Parent>p.chain[p.leg + 1]).address
    if parent.passes_credentials and p.credentials is not None:
        basic = p.credentials           # which client.extras.passage keeps
    e.credentials = Value(NULL, 0) if basic is None else Value(basic, len(basic))
    e.via = Value(NULL, 0) if p.via is None else Value(p.via, len(p.via))
    e.login = Login(parent.user, parent.password, len(parent.user), len(parent.password))
    e.has_login = len(parent.user) > 0
    e.protocol = <unsigned char>parent.protocol
    return 0


cdef size_t put_proxy_header(Client c, char *out, int version) noexcept:
    """Names the client, and the address that it connected to."""
    cdef sockaddr_storage name
    cdef Address own
    cdef ProxyHeader client, listener
    own.family = 0
    if not read_own_name(with_descriptor(&c.sock), &name) or not from_sockaddr(&name, &own):
        own = c.address                 # a unix socket: it has none
    put_end(&client, &c.address)
    put_end(&listener, &own)
    return build_proxy_header(out, version, &client, &listener)


cdef void put_end(ProxyHeader *out, const Address *address) noexcept:
    out.family = 0 if address.family == UNIX_CALLER else address.family     # no network address
    out.port = address.port
    memcpy(out.address, address.bytes, 16)
