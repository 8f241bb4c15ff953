# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Captures requests in a worker, if the deciding rule has `capture`, into the worker's ring.

    on_route      taps the request's body, if the rule captures in full
    on_response   HEADS: the response's head; taps its body
    (taps)        UP, DOWN: pieces of the bodies, up to a bound
    on_end        END: everything that the log knows, and the request's head

A request's head is kept by its session to the end of the exchange, and is written once, as it
went to the origin: no credentials of the proxy are in it (R37). A tunnel is END alone, and its
bytes are never tapped. If the ring has no room, the record is dropped and counted; nothing
waits (R58). The identifier is the log's, so the END of a tunnel that another worker finished
finds its HEADS.

The state of a captured body is in a struct around its tap, made for the exchange: a client has
no field for it.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen
from cutthrough.capture.ring cimport (
    DOWN, END, HEADS, UP, Kind, Producer, Ring, publish, reserve)
from cutthrough.net cimport linux
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.relay cimport Tap
from cutthrough.net.sysio cimport clock_us
from cutthrough.policy.acl cimport CAPTURE_FULL, CAPTURE_NOTHING
from cutthrough.session.client cimport (
    Client, Observer, carries_tunnel, parent_of, peer_of, worker_of_id)
from cutthrough.session.phases cimport Stamps, end_last_phase
from cutthrough.session.request cimport Request
from cutthrough.wire.http1 cimport HTTP_11, Head
from cutthrough.wire.openings cimport Opening, alpn_of, server_name

# The texts behind an EndRecord, in this order. records.py has the same.
cdef enum:
    T_USER = 0
    T_HOST
    T_RULE
    T_PARENT
    T_CLIENT
    T_PEER
    T_SNI
    T_ALPN
    T_JA4
    T_HEAD                      # the request's; empty: not known
    N_TEXTS

cdef enum Flag:
    IS_TUNNEL = 1
    IS_REUSED = 2               # over a pooled connection
    IS_REPORTED = 4
    HAS_UPGRADE = 8
    UP_CHUNKED = 16             # pieces of the body have the framing of chunks
    DOWN_CHUNKED = 32
    UP_CUT = 64                 # pieces found no room in the ring
    DOWN_CUT = 128
    WAS_RETRIED = 256
    OFFERS_ECH = 512

cdef struct EndRecord:
    int64_t end_us              # Unix time
    int64_t total_us
    int64_t first_byte_us       # from the connection to the response's first byte; 0: none
    int64_t receive_us          # from then to the end
    uint64_t bytes_up
    uint64_t bytes_down
    uint64_t body_up            # bytes of the body, its framing included; UINT64_MAX: not counted
    uint64_t body_down
    uint32_t head_us            # of Stamps; 0: not begun
    uint32_t auth_us
    uint32_t hook_us
    uint32_t dns_us
    uint32_t connect_us
    uint32_t send_us
    uint32_t lengths[N_TEXTS]
    uint16_t status
    uint16_t port
    uint16_t client_port
    uint16_t peer_port
    uint16_t tls_version        # the highest that the ClientHello of a tunnel offers
    uint16_t flags
    uint8_t outcome
    uint8_t method              # wire's Method
    uint8_t host_kind
    uint8_t protocol            # of a tunnel; 0: not looked at

# One direction of a body. `tap` is first: the pump's pointer is to this field.
cdef struct Body:
    Tap tap
    Producer *ring
    uint64_t request
    uint64_t seen               # bytes behind the head
    uint64_t room               # bytes that may still be kept
    uint16_t worker
    uint16_t kind               # UP or DOWN
    uint8_t is_behind_head
    uint8_t was_cut             # the ring had no room

cdef struct Exchange:
    Body up                     # first: relay.up.tap points to it
    Body down


cdef void take(Tap *tap, const char *data, size_t n) noexcept nogil:
    cdef Body *body = <Body *>tap
    cdef char *at
    if n == 0:
        return
    if not body.is_behind_head:         # the first piece is the head, alone
        body.is_behind_head = True
        return
    body.seen += n
    n = min(n, body.room)
    if n == 0:
        return
    at = reserve(body.ring, n)
    if at == NULL:
        body.ring.header.parts += 1
        body.was_cut = True
        body.room = 0                   # a later piece would not fit behind this gap
        return
    memcpy(at, data, n)
    publish(body.ring, <Kind>body.kind, body.worker, body.request, n)
    body.room -= n


cdef class Capture(Observer):
    """Observes the requests of a worker. `ring` is the worker's."""
    cdef Ring ring
    cdef int worker
    cdef uint64_t most_body             # bytes kept of each body
    cdef readonly Py_ssize_t tapped     # exchanges in hand with taps

    def __init__(self, Ring ring, int worker):
        self.ring = ring
        self.worker = worker

    def configure(self, uint64_t most_body):
        self.most_body = most_body

    cdef int on_route(self, Client client) except -1:
        cdef Exchange *exchange
        if mode_of(client) != CAPTURE_FULL or (
                client.request.is_tunnel or client.request.has_upgrade):
            return 0
        exchange = <Exchange *>client.relay.up.tap      # not NULL: the request is retried
        if exchange == NULL:
            exchange = <Exchange *>calloc(1, sizeof(Exchange))
            if exchange == NULL:
                return 0                # captured without its bodies
            self.tapped += 1
        else:
            memset(exchange, 0, sizeof(Exchange))
        self.begin(&exchange.up, client, UP)
        self.begin(&exchange.down, client, DOWN)
        client.relay.up.tap = &exchange.up.tap
        return 0

    cdef void begin(self, Body *body, Client client, Kind kind) noexcept:
        body.tap.take = take
        body.ring = &self.ring.producer
        body.request = client.request_id
        body.worker = <uint16_t>worker_of_id(client, self.worker)
        body.kind = <uint16_t>kind
        body.room = self.most_body

    cdef int on_response(self, Client client, const Head *head, const char *data) except -1:
        cdef Producer *ring = &self.ring.producer
        cdef uint32_t n_up = 0, n_down
        cdef char *at
        if head == NULL or mode_of(client) == CAPTURE_NOTHING:
            return 0
        if client.relay.up.tap != NULL:
            client.relay.down.tap = &(<Exchange *>client.relay.up.tap).down.tap
        n_down = head.length - head.start
        if client.request.has_upgrade and client.head != NULL:
            n_up = client.head.end              # it is dropped when the tunnel begins
        at = reserve(ring, sizeof(n_up) + n_up + n_down)
        if at == NULL:
            ring.header.parts += 1
            return 0
        memcpy(at, &n_up, sizeof(n_up))
        at += sizeof(n_up)
        if n_up:
            memcpy(at, bytes_of(client.head), n_up)
        memcpy(at + n_up, data + head.start, n_down)
        publish(ring, HEADS, <uint16_t>worker_of_id(client, self.worker), client.request_id,
                sizeof(n_up) + n_up + n_down)
        return 0

    cdef int on_end(self, Client client, int outcome) except -1:
        cdef Exchange *exchange = <Exchange *>client.relay.up.tap
        cdef bint is_captured = mode_of(client) != CAPTURE_NOTHING
        cdef EndRecord end
        memset(&end, 0, sizeof(end))
        if is_captured:
            end.outcome = <uint8_t>outcome
            fill_in(&end, client)
            fill_bodies(&end, client, exchange)
        if exchange != NULL:
            client.relay.up.tap = client.relay.down.tap = NULL
            free(exchange)
            self.tapped -= 1
        return self.write(&end, client) if is_captured else 0

    cdef int write(self, EndRecord *end, Client client) except -1:
        cdef Producer *ring = &self.ring.producer
        cdef const char *texts[N_TEXTS]
        cdef char[ADDRESS_TEXT] client_text
        cdef char[ADDRESS_TEXT] peer_text
        cdef size_t n = sizeof(EndRecord)
        cdef char *at
        cdef int i
        cdef bytes rule = client.snapshot.acl.label(client.request.rule)
        cdef bytes parent = parent_of(client)
        point(&texts[T_USER], &end.lengths[T_USER], client.user)
        point(&texts[T_HOST], &end.lengths[T_HOST], client.key)
        end.lengths[T_HOST] -= min(end.lengths[T_HOST], <uint32_t>2)    # the port
        point(&texts[T_RULE], &end.lengths[T_RULE], rule)
        point(&texts[T_PARENT], &end.lengths[T_PARENT], parent)
        texts[T_CLIENT] = client_text
        end.lengths[T_CLIENT] = print_address(&client.address, client_text)
        texts[T_PEER] = peer_text
        if peer_of(client) != NULL:
            end.lengths[T_PEER] = print_address(peer_of(client), peer_text)
            end.peer_port = peer_of(client).port
        if client.opening != NULL:
            fill_opening(end, texts, client.opening)
        if client.head != NULL and client.request.path_len:
            texts[T_HEAD] = bytes_of(client.head)
            end.lengths[T_HEAD] = client.head.end
        for i in range(<int>N_TEXTS):
            n += end.lengths[i]
        at = reserve(ring, n)
        if at == NULL:
            ring.header.dropped += 1
            return 0
        memcpy(at, end, sizeof(EndRecord))
        at += sizeof(EndRecord)
        for i in range(<int>N_TEXTS):
            if end.lengths[i]:
                memcpy(at, texts[i], end.lengths[i])
                at += end.lengths[i]
        ring.header.exchanges += 1
        publish(ring, END, <uint16_t>worker_of_id(client, self.worker), client.request_id, n)
        return 0


cdef inline int mode_of(Client client) noexcept:
    """The Capturing of the rule that decided."""
    if client.request.rule < 0 or client.snapshot is None or client.snapshot.acl is None:
        return CAPTURE_NOTHING
    return client.snapshot.acl.rows[client.request.rule].capture


cdef inline void point(const char **text, uint32_t *n, bytes value) noexcept:
    if value is not None:
        text[0] = value
        n[0] = <uint32_t>len(value)


cdef void fill_in(EndRecord *end, Client c) noexcept:
    cdef const Request *r = &c.request
    cdef Stamps stamps = c.stamps
    cdef linux.timespec now
    linux.clock_gettime(linux.CLOCK_REALTIME, &now)
    end.end_us = <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000
    end_last_phase(&stamps, c.state)
    end.total_us = clock_us() - stamps.start_us
    end.first_byte_us = stamps.first_byte_us
    if stamps.first_byte_us:
        end.receive_us = max(<int64_t>0, end.total_us - stamps.mark_us)
    end.head_us = stamps.head_us
    end.auth_us = stamps.auth_us
    end.hook_us = stamps.hook_us
    end.dns_us = stamps.dns_us
    end.connect_us = stamps.connect_us
    end.send_us = stamps.send_us
    end.bytes_up = c.relay.up.moved
    end.bytes_down = c.relay.down.moved
    end.status = r.status
    end.port = r.port
    end.client_port = c.address.port
    end.method = r.method
    end.host_kind = r.host_kind
    if carries_tunnel(c):
        end.flags |= IS_TUNNEL
    if c.origin is not None and c.origin.reused:
        end.flags |= IS_REUSED
    if r.reported:
        end.flags |= IS_REPORTED
    if r.has_upgrade:
        end.flags |= HAS_UPGRADE
    if r.retried:
        end.flags |= WAS_RETRIED


cdef void fill_bodies(EndRecord *end, Client c, const Exchange *exchange) noexcept:
    end.body_up = end.body_down = UINT64_MAX
    if exchange == NULL:
        return
    end.body_up = exchange.up.seen
    if c.relay.down.tap != NULL:
        end.body_down = exchange.down.seen
    if c.up_scan != NULL:
        end.flags |= UP_CHUNKED
    if c.down_scan != NULL and c.request.minor == HTTP_11:
        end.flags |= DOWN_CHUNKED
    if exchange.up.was_cut:
        end.flags |= UP_CUT
    if exchange.down.was_cut:
        end.flags |= DOWN_CUT


cdef void fill_opening(EndRecord *end, const char **texts, const Opening *opening) noexcept:
    end.protocol = opening.protocol
    end.tls_version = opening.version
    if opening.offers_ech:
        end.flags |= OFFERS_ECH
    texts[T_SNI] = server_name(opening)
    end.lengths[T_SNI] = opening.name_len
    texts[T_ALPN] = alpn_of(opening)
    end.lengths[T_ALPN] = opening.alpn_len
    texts[T_JA4] = &opening.ja4[0]
    end.lengths[T_JA4] = <uint32_t>strlen(opening.ja4)
