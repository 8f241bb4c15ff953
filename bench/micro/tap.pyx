# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loop of bench/micro/tap.py."""

from time import perf_counter

from cutthrough.tape.ring cimport Ring
from cutthrough.net.buffers cimport OF_REQUESTS, give_block, keep_bytes
from cutthrough.net.connector cimport Upstream
from cutthrough.net.sysio cimport clock_us
from cutthrough.outcome cimport OK
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.client cimport Client, Observer, set_user
from cutthrough.session.model.state cimport RELAY
from cutthrough.wire.http1 cimport Head, HeadLimits, parse_response
from cutthrough.wire.names cimport M_GET

cdef enum:
    FREED = 1000                # exchanges after which the ring's room is free again

cdef HeadLimits LIMITS = HeadLimits(8192, 16384, 100)


def tap_heads(Observer observer, Ring ring, Snapshot snapshot, bytes request, bytes response,
              long n):
    """A plain request over a pooled connection. The reader costs nothing here: room is freed, and
    the records are not read."""
    cdef Client client = Client.__new__(Client)
    cdef Upstream origin = Upstream.__new__(Upstream)
    cdef Head head
    cdef const char *data = response
    cdef long i
    assert parse_response(&head, data, len(response), 0, &LIMITS) > 0
    client.snapshot = snapshot
    client.origin = origin
    origin.sock.fd = -1
    origin.reused = True
    client.request.rule = 0
    client.request.method = M_GET
    client.request.port = 80
    client.key = b"www.example.com\x00\x50"
    set_user(client, b"somebody")
    for address in (0, 1):
        (&client.address if address else &origin.address).family = 4
        (&client.address if address else &origin.address).bytes[0] = 192
        (&client.address if address else &origin.address).bytes[3] = 117
    client.head = keep_bytes(request, len(request), OF_REQUESTS)
    client.request.path_at = 4
    client.request.path_len = request.index(b" HTTP/1.1") - 4
    client.request.status = 200
    client.stamps.start_us = clock_us()
    client.stamps.first_byte_us = 1500
    client.stamps.head_us = client.stamps.connect_us = client.stamps.send_us = 20
    began = perf_counter()
    for i in range(n):
        client.request_id += 1
        client.state = RELAY
        observer.on_response(client, &head, data)
        observer.on_end(client, OK)
        if i % FREED == 0:
            ring.producer.header.tail = ring.producer.header.head
    took = perf_counter() - began
    give_block(&client.head)
    client.origin = None
    counts = ring.counts()
    assert counts["captured"] == n and not counts["dropped"] and not counts["partial"], counts
    return took
