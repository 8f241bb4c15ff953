# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Connections to parents and servers without a client's request: for a check, and for standby.

    Probe:        dial ─> session.ways.dialogue ─> the target is connected ─> (TLS with it) ─> closed
    ServerProbe:  dial ─> TLS, if the server has it ─> a request ─> the answer's status ─> closed
    SetUp:        dial ─> TLS, if the parent has it ─> session.model.standby

No client, no request and no log belong to one: it is a Client as far as `parents` and `dialogue`
need one, and in no list of them. The policy does not judge the target, because the operator has
named it; the parent's own address is judged as for a request (R20).
"""

cimport cython
from functools import partial

from libc.stdint cimport int64_t
from libc.string cimport memcmp
from cutthrough.net cimport linux
from cutthrough.net.address cimport Address, Addresses, one_address
from cutthrough.net.buffers cimport scratch
from cutthrough.net.connector cimport (
    ALLOWED, FAULT, FORBIDDEN, Connector, Leave, Upstream)
from cutthrough.net.linux cimport ETIMEDOUT
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, PEER_DONE, clock_us, try_peek, try_send)
from cutthrough.net.transport cimport (
    HANDSHAKE_DENIED, HANDSHAKE_DONE, HANDSHAKE_MORE, TLS, Socket, open_transport, transport_of)
from cutthrough.outcome cimport (
    BAD_RESPONSE, INTERNAL_ERROR, OK, OVERLOADED, PARENT_CLOSED, PARENT_TIMEOUT,
    PARENT_UNREACHABLE, TLS_CERTIFICATE, TLS_FAILED)
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.policy.hop cimport HOP_FORWARD, HOP_NAMED_ORIGIN, HOP_PARENT
from cutthrough.policy.parents cimport Parent
from cutthrough.session.model.client cimport Client, extras_of, forget_dial
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.passage cimport Passage
from cutthrough.session.model.standby cimport Standby
from cutthrough.session.model.state cimport PARENT
from cutthrough.session.ways.dials cimport begin_dial, is_own_shortage, outcome_of_errno
from cutthrough.session.ways.dialogue cimport STILL_TALKING, begin_dialogue, go_on_talking
from cutthrough.session.ways.origins cimport outcome_of_server
from cutthrough.session.ways.parents cimport may_dial_parent
from cutthrough.wire.authority cimport HOST_IPV4, HOST_NAME, parse_authority

cdef enum:
    STATUS_BYTES = 12           # "HTTP/1.1 200"


@cython.no_gc
cdef class Probe(Client):
    cdef object done            # of the caller; None: it has been called
    cdef int64_t began_us
    cdef bytes server_name      # in the target's certificate; None: no TLS with it
    cdef int tls                # number of the context for that
    cdef bint is_through        # the target is connected

    def __init__(self, Context context, Parent parent, str target, done, int tls=-1,
                 str server_name=""):
        """Begins at once. `done`: called once with the label of an outcome and the time in
        microseconds, possibly before this returns. `tls`: number of the context for a TLS
        handshake with the target, if `server_name` is not "". Raises ValueError for a
        target without host and port."""
        cdef Passage p = self.make_passage(context, parent)
        cdef bytes text = target.encode()
        if parse_authority(&p.target, text, len(text), 0) != 0:
            raise ValueError(target)
        p.via = b"1.1 " + context.pseudonym[:context.pseudonym_len] if (
            context.pseudonym_len) else None
        self.request.hop.kind = HOP_PARENT
        self.done = done
        self.tls = tls
        self.server_name = server_name.encode() or None
        chain = [parent]
        while parent.via is not None:
            parent = parent.via
            chain.append(parent)
        p.chain = tuple(chain[::-1])
        self.set_out()

    cdef Passage make_passage(self, Context context, Parent parent):
        """The passage to this parent alone."""
        cdef Passage p = Passage.__new__(Passage)
        self.context = context
        self.poller = context.poller
        self.snapshot = context.snapshot
        p.parent = parent
        p.chain = (parent,)
        extras_of(self).passage = p
        self.began_us = clock_us()
        return p

    cdef int set_out(self) except -1:
        cdef Context context = self.context
        cdef Parent parent = self.extras.passage.chain[0]
        cdef bytes host
        if parent.address.host_kind != HOST_NAME:
            return self.dial_first(one_address(
                4 if parent.address.host_kind == HOST_IPV4 else 6, parent.address.address))
        host = parent.address.host[:parent.address.host_len]
        addresses = context.resolver.cached(host)
        if addresses is not None:
            return self.take_found(addresses)
        context.resolver.resolve(host, partial(on_resolved, self))
        return 0

    @property
    def is_over(self):
        return self.done is None

    def close_now(self):
        """Ends without a result. Idempotent."""
        self.done = None
        self.close_origin(False)

    cdef int take_found(self, answer) except -1:
        """`answer`: the resolver's, Addresses or the label of an outcome."""
        if isinstance(answer, Addresses) and (<Addresses>answer).n:
            return self.dial_first(answer)
        return self.finish(OVERLOADED if is_own_shortage(answer) else PARENT_UNREACHABLE)

    cdef int dial_first(self, Addresses addresses) except -1:
        cdef Parent first = self.extras.passage.chain[0]
        return begin_dial(self, addresses, first.address.port)

    cdef Leave may_dial(self, const Address *address) except FAULT:
        return ALLOWED if may_dial_parent(self, address) else FORBIDDEN

    cdef int on_dialled(self, Connector connector, Upstream upstream, int error) except -1:
        forget_dial(self)
        if upstream is None:
            if error and outcome_of_errno(error) == OVERLOADED:
                return self.finish(OVERLOADED)
            return self.finish(PARENT_TIMEOUT if error == ETIMEDOUT else PARENT_UNREACHABLE)
        self.origin = upstream
        upstream.set_deadline(self.context.options.timeout_ms[PARENT])
        return self.judge(begin_dialogue(self))

    cdef int on_upstream(self, Upstream upstream) except -1:
        return self.shake() if self.is_through else self.judge(go_on_talking(self))

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        return self.finish(PARENT_TIMEOUT)

    cdef int on_fault(self) except -1:
        return self.finish(INTERNAL_ERROR)

    cdef int judge(self, int outcome) except -1:
        if outcome == STILL_TALKING:
            return 0
        if outcome != OK or self.server_name is None:
            return self.finish(outcome)
        self.is_through = True
        if open_transport(&self.origin.sock, TLS, self.tls, self.server_name) < 0:
            return self.finish(TLS_FAILED)      # no memory
        return self.shake()

    cdef int shake(self) except -1:
        """One attempt at the TLS handshake with the target."""
        cdef Socket *sock = &self.origin.sock
        cdef int result = transport_of(sock).handshake(sock)
        if result == HANDSHAKE_MORE:
            return 0
        if result == HANDSHAKE_DONE:
            return self.finish(OK)
        return self.finish(TLS_CERTIFICATE if result == -HANDSHAKE_DENIED else TLS_FAILED)

    cdef int finish(self, int outcome) except -1:
        done = self.done
        self.done = None
        self.close_origin(False)
        if done is not None:
            done(OUTCOMES[outcome].label, clock_us() - self.began_us)
        return 0


@cython.no_gc
cdef class ServerProbe(Probe):
    """A check of a named origin's server: it has to answer with a good status."""
    cdef bytes question
    cdef tuple statuses

    def __init__(self, Context context, Parent server, bytes question, statuses, done):
        """Begins at once. `question`: a whole request, after which the server closes; b"": a
        connection is enough. `statuses`: ranges with both ends. `done`: as of Probe."""
        self.make_passage(context, server)
        self.request.hop.kind = HOP_NAMED_ORIGIN
        self.question, self.statuses = question, tuple(statuses)
        self.done = done
        self.set_out()

    cdef int judge(self, int outcome) except -1:
        cdef bytes question = self.question
        cdef size_t n = len(question)
        if outcome == STILL_TALKING:
            return 0
        if outcome != OK or n == 0:
            return self.finish(outcome)
        self.is_through = True
        if try_send(&self.origin.sock, <const char *>question, n) != <ssize_t>n:
            return self.finish(PARENT_CLOSED)
        return self.read_status()

    cdef int finish(self, int outcome) except -1:
        return Probe.finish(self, outcome_of_server(outcome))

    cdef int on_upstream(self, Upstream upstream) except -1:
        return self.read_status() if self.is_through else self.judge(go_on_talking(self))

    cdef int read_status(self) except -1:
        """Looks at the first bytes of the answer; nothing else of it is of interest."""
        cdef Socket *sock = &self.origin.sock
        cdef char *data = scratch()
        cdef ssize_t n
        if not sock.ready & CAN_READ:
            return 0
        n = try_peek(sock, data, STATUS_BYTES)
        if n == -linux.EAGAIN:
            return 0
        if n < STATUS_BYTES:
            return self.finish(PARENT_CLOSED) if (
                n <= 0 or sock.ready & (PEER_DONE | BROKEN)) else 0
        return self.finish(OK if memcmp(data, b"HTTP/1.", 7) == 0 and (
            self.accepts(data + 9)) else BAD_RESPONSE)

    cdef bint accepts(self, const char *digits) except -1:
        cdef int i, low, high, status = 0
        for i in range(3):
            if not c'0' <= digits[i] <= c'9':
                return False
            status = 10 * status + digits[i] - c'0'
        for low, high in self.statuses:
            if low <= status <= high:
                return True
        return False


@cython.no_gc
cdef class SetUp(Probe):
    """One connection for a parent's standby, which gets it, or gets to know that there is none.
    Nothing is said on it: a request says it."""
    cdef Standby standby        # None: it is over

    def __init__(self, Context context, Parent parent, Standby standby):
        """Begins at once, and possibly ends before this returns."""
        self.make_passage(context, parent)
        self.request.hop.kind = HOP_FORWARD     # no message to the parent
        self.standby = standby
        self.done = standby
        self.set_out()

    def close_now(self):
        self.standby = None
        Probe.close_now(self)

    cdef int finish(self, int outcome) except -1:
        cdef Standby standby = self.standby
        cdef Upstream upstream = self.origin
        self.standby = self.done = None
        if standby is None:
            return self.close_origin(False)
        if outcome != OK:
            self.close_origin(False)
            return standby.miss()
        self.origin = None
        return standby.keep(upstream)


def on_resolved(Probe probe, answer):
    if probe.done is None:
        return                          # it was closed meanwhile
    try:
        probe.poller.take_time()
        probe.take_found(answer)
    except BaseException:
        probe.poller.contain(probe)
