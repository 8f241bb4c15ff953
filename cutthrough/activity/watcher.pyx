# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Observes a worker's connections and exchanges for the operator's activity tracker.

    on_connect ─> (on_client_tls) ─> on_request ─> on_origin ─> on_response ─> on_end ─> on_disconnect
                                          └ on_origin_tls ┘  └── on_bytes ──┘

It is the context's observer if a tracker is configured, and passes each phase on to the capture
behind it. Bytes are no event of the session: all open exchanges are looked at every SAMPLE_S, in
one turn of the loop, so a transfer does nothing for them.
"""

from libc.stdint cimport uint64_t
from cutthrough.activity.events import Connection, Exchange
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.transport cimport Agreed
from cutthrough.outcome cimport label_of
from cutthrough.session.describe cimport method_of, text_of
from cutthrough.session.judge.secure cimport agreed_behind, agreed_by
from cutthrough.session.model.client cimport (
    Client, Observer, carries_tunnel, parent_of, peer_of, user_of, worker_of_id)
from cutthrough.session.model.inside cimport is_intercepted
from cutthrough.wire.clienthello cimport version_text
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.names cimport M_TUNNEL

SAMPLE_S = 0.1


cdef class Progress:
    """The progress of an open exchange: bytes of each pump at the last look, bytes that are not
    reported yet, and whether its response was reported."""
    cdef uint64_t up, down
    cdef uint64_t more_up, more_down
    cdef bint is_answered


cdef class Watcher(Observer):
    """`calls` are the tracker's; `worker` is the number in identifiers."""
    cdef public Observer behind         # the capture; None: nothing is captured
    cdef readonly object calls
    cdef object loop
    cdef object timer                   # of the next sample; None: nothing is to be sampled
    cdef int worker
    cdef uint64_t last                  # number of the newest connection
    cdef bint samples
    cdef dict connections               # Client -> number, streams too
    cdef dict exchanges                 # Client -> Progress

    def __init__(self, calls, int worker, loop):
        self.calls = calls
        self.worker = worker
        self.loop = loop
        self.samples = calls.wants("on_bytes")
        self.connections = {}
        self.exchanges = {}

    @property
    def held(self):
        """Connections and exchanges that have not ended."""
        return len(self.connections) + len(self.exchanges)

    def close(self):
        """Ends the sampling."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # --- connections

    def on_connect(self, Client client):
        self.last += 1
        self.connections[client] = self.last
        self.report_connection("on_connect", client)

    def on_stream(self, Client client, Client carrier):
        self.connections[client] = self.connections.get(carrier, 0)

    def on_client_tls(self, Client client):
        self.report_connection("on_client_tls", client)

    def on_disconnect(self, Client client):
        self.exchanges.pop(client, None)
        if self.is_of_client(client):
            self.report_connection("on_disconnect", client)
        self.connections.pop(client, None)

    cdef bint is_of_client(self, Client client) except -1:
        """Is this a client's own connection, and no stream, probe, or tunnel of an earlier worker?"""
        return client in self.connections and not is_stream(&client.sock)

    cdef int report_connection(self, str hook, Client client) except -1:
        cdef const Agreed *agreed
        if not self.calls.wants(hook):
            return 0
        agreed = agreed_by(client)
        self.calls.put(hook, Connection(
            number=self.connections.get(client, 0), worker=self.worker,
            client=text_of(&client.address), client_port=client.address.port,
            intercepted=client.entrance is not None and client.entrance.is_inside,
            tls_version=version_of(agreed), cipher=cipher_of(agreed)))
        return 0

    # --- exchanges

    cdef int on_request(self, Client client, const Head *head, const char *data) except -1:
        self.exchanges[client] = Progress.__new__(Progress)
        self.report("on_request", client, 0, None)
        if self.samples and self.timer is None:
            self.timer = self.loop.call_later(SAMPLE_S, self.on_timer)
        if self.behind is not None:
            self.behind.on_request(client, head, data)
        return 0

    cdef int on_route(self, Client client) except -1:
        cdef Progress progress = <Progress>self.exchanges.get(client)
        if progress is not None:
            progress.up = progress.down = 0         # the pumps begin, perhaps again
        if client.origin is not None:
            self.report("on_origin", client, 0, None)
        if self.behind is not None:
            self.behind.on_route(client)
        return 0

    def on_origin_tls(self, Client client):
        if client in self.exchanges:                # else it is a probe
            self.report("on_origin_tls", client, 0, None)

    def on_parent_lost(self, Client client, int outcome):
        if client in self.exchanges:
            self.report("on_parent_failed", client, 0, label_of(outcome).decode())

    cdef int on_response(self, Client client, const Head *head, const char *data) except -1:
        cdef Progress progress = <Progress>self.exchanges.get(client)
        cdef int status = 200 if head == NULL else head.status
        if progress is not None:
            progress.is_answered = True
            if status == 101:                       # the pumps begin again
                self.look(client, progress)
                progress.up = progress.down = 0
        if client.request.method != M_TUNNEL:       # none is sent to a transparent client
            self.report("on_response", client, status, None)
        if self.behind is not None:
            self.behind.on_response(client, head, data)
        return 0

    def on_handover(self, Client client):
        """Forgets a tunnel that ends in the other worker, which reports it."""
        self.exchanges.pop(client, None)
        self.connections.pop(client, None)
        if self.behind is not None:
            self.behind.on_handover(client)

    cdef int on_end(self, Client client, int outcome) except -1:
        cdef Progress progress = <Progress>self.exchanges.pop(client, None)
        if progress is not None:
            self.look(client, progress)
        # A reply of our own: it has been sent
        if client.request.status and not carries_tunnel(client) and (
                progress is None or not progress.is_answered):
            self.report("on_response", client, 0, None)
        self.report("on_end", client, 0, label_of(outcome).decode())
        if self.behind is not None:
            self.behind.on_end(client, outcome)
        return 0

    cdef int report(self, str hook, Client client, int status, str reason) except -1:
        if self.calls.wants(hook):
            self.calls.put(hook, self.exchange_of(client, status, reason))
        return 0

    cdef object exchange_of(self, Client client, int status, str reason):
        cdef bytes user = user_of(client)
        cdef bytes parent = parent_of(client)
        cdef bint is_known = client.key is not None and client.request.port != 0
        cdef bint is_there = client.origin is not None and peer_of(client) != NULL
        cdef const Agreed *agreed = agreed_behind(client)
        return Exchange(
            id=f"{worker_of_id(client, self.worker)}-{client.request_id}",
            connection=self.connections.get(client, 0),
            client=text_of(&client.address), client_port=client.address.port,
            method=method_of(client),
            host=client.key[:len(client.key) - 2].decode("ascii", "replace") if (
                is_known) else None,
            port=client.request.port if is_known else None,
            user=None if user is None else user.decode("utf-8", "replace"),
            kind="tunnel" if carries_tunnel(client) else "request",
            intercepted=is_intercepted(client),
            parent=None if parent is None else parent.decode(),
            peer=text_of(peer_of(client)) if is_there else None,
            peer_port=peer_of(client).port if is_there else None,
            reused=client.origin is not None and client.origin.reused != 0,
            connect_ms=client.stamps.connect_us / 1e3 if client.stamps.connect_us else None,
            peer_tls_version=version_of(agreed), peer_cipher=cipher_of(agreed),
            status=status or client.request.status or None,
            bytes_up=client.relay.up.moved, bytes_down=client.relay.down.moved,
            reason=reason)

    # --- bytes

    def on_timer(self):
        cdef Client client
        self.timer = None
        for client, progress in self.exchanges.items():
            self.look(client, <Progress>progress)
        if self.exchanges:
            self.timer = self.loop.call_later(SAMPLE_S, self.on_timer)

    cdef int look(self, Client client, Progress progress) except -1:
        """Reports what its pumps have moved since the last look, or keeps it for the next."""
        cdef uint64_t up = client.relay.up.moved
        cdef uint64_t down = client.relay.down.moved
        if not self.samples:
            return 0
        progress.more_up += up - progress.up if up >= progress.up else up
        progress.more_down += down - progress.down if down >= progress.down else down
        progress.up = up
        progress.down = down
        if (progress.more_up or progress.more_down) and self.calls.put(
                "on_bytes", self.exchange_of(client, 0, None), progress.more_up,
                progress.more_down):
            progress.more_up = progress.more_down = 0
        return 0


cdef object version_of(const Agreed *agreed):
    return None if agreed == NULL else (version_text(agreed.version).decode() or None)


cdef object cipher_of(const Agreed *agreed):
    return None if agreed == NULL or agreed.cipher == NULL else agreed.cipher.decode()
