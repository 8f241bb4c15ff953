# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops of bench/micro/cost.py. Each runs `n` times and returns the seconds it took."""

from time import perf_counter

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from cutthrough.net.buffers cimport OF_REQUESTS, give_block, keep_bytes
from cutthrough.net.sysio cimport CAN_READ, try_peek
from cutthrough.net.timers cimport Timer, Wheel
from cutthrough.net.transport cimport Socket
from cutthrough.outcome cimport OK
from cutthrough.session.model.client cimport Client, Journal, set_user
from cutthrough.session.model.flight_recorder cimport E_UP, FlightRecorder, note
from cutthrough.wire.chunks cimport Chunks, scan_chunks, start_chunks
from cutthrough.wire.clienthello cimport MOST_HELLO, ClientHello
from cutthrough.wire.http1 cimport Head, HeadLimits, parse_request, parse_response
from cutthrough.wire.names cimport M_GET
from cutthrough.wire.openings cimport (
    TLS, UNKNOWN, Protocol, make_opening, read_client_opening)
from cutthrough.wire.rewrite cimport (
    REWRITE_ROOM, Span, Writing, build_request_head, build_response_head)
from cutthrough.wire.authority cimport Target
from cutthrough.wire.target cimport read_target

# The default limits of cutthrough/config/config.py.
cdef HeadLimits LIMITS = HeadLimits(8192, 16384, 100)


def parse_requests(bytes text, long n):
    cdef Head head
    cdef char *buf = text
    cdef size_t length = len(text)
    cdef long _i
    cdef int got = 1
    began = perf_counter()
    for _i in range(n):
        got = parse_request(&head, buf, length, 0, &LIMITS)
    took = perf_counter() - began
    assert got == <int>length, got
    return took


def parse_responses(bytes text, long n):
    cdef Head head
    cdef char *buf = text
    cdef size_t length = len(text)
    cdef long _i
    cdef int got = 1
    began = perf_counter()
    for _i in range(n):
        got = parse_response(&head, buf, length, 0, &LIMITS)
    took = perf_counter() - began
    assert got == <int>length, got
    return took


def rewrite_requests(bytes text, long n):
    """Target and rewritten head, of a head that was parsed once."""
    cdef Head head
    cdef Target target
    cdef char *buf = text
    cdef char out[16384 + REWRITE_ROOM]
    cdef Writing writing
    cdef Span path
    cdef long _i
    cdef int got = 1
    assert parse_request(&head, buf, len(text), 0, &LIMITS) > 0
    began = perf_counter()
    for _i in range(n):
        got = read_target(&target, &head, buf, False)
        writing = Writing(&out[0], sizeof(out), b"bench", 5, 0)
        got = build_request_head(&writing, &head, buf, &target, 80, &path)
    took = perf_counter() - began
    assert got > 0, got
    return took


def rewrite_responses(bytes text, long n):
    cdef Head head
    cdef char *buf = text
    cdef char out[16384 + REWRITE_ROOM]
    cdef Writing writing
    cdef long _i
    cdef int got = 1
    assert parse_response(&head, buf, len(text), 0, &LIMITS) > 0
    began = perf_counter()
    for _i in range(n):
        writing = Writing(&out[0], sizeof(out), b"bench", 5, 0)
        got = build_response_head(&writing, &head, buf, NULL)
    took = perf_counter() - began
    assert got > 0, got
    return took


def scan_bodies(bytes text, long n):
    """A chunked body in one piece. The scanner may change what it scans, so each turn
    begins with a copy, which scan_copies() measures alone."""
    cdef Chunks chunks
    cdef bytearray copy = bytearray(len(text))
    cdef char *buf = copy
    cdef const char *whole = text
    cdef size_t length = len(text), out
    cdef long _i
    cdef int64_t got = 0
    began = perf_counter()
    for _i in range(n):
        memcpy(buf, whole, length)
        start_chunks(&chunks, False, True, False)
        got = scan_chunks(&chunks, buf, length, &out)
    took = perf_counter() - began
    assert got == <int64_t>length and chunks.done
    return took


def scan_copies(bytes text, long n):
    cdef bytearray copy = bytearray(len(text))
    cdef char *buf = copy
    cdef const char *whole = text
    cdef size_t length = len(text)
    cdef long _i
    began = perf_counter()
    for _i in range(n):
        memcpy(buf, whole, length)
        buf[_i % length] ^= 1    # or the compiler would leave the copy out
    return perf_counter() - began


def write_lines(Journal journal, long n):
    """A tunnel's line; every so many a flush to the file, as in life."""
    cdef Client client = Client.__new__(Client)
    cdef long _i
    client.request.is_tunnel = True
    client.request.status = 200
    client.request.port = 443
    client.key = b"www.example.com\x01\xbb"
    set_user(client, b"somebody")
    client.address.family = 4
    client.address.bytes[0] = 192
    client.address.bytes[3] = 17
    client.request.method = M_GET
    began = perf_counter()
    for _i in range(n):
        journal.write(client, OK)
    return perf_counter() - began


def write_requests(Journal journal, bytes head, long n):
    """A plain request's line: `head` is as it went up to the origin."""
    cdef Client client = Client.__new__(Client)
    cdef long _i
    client.request.status = 200
    client.request.port = 80
    client.key = b"www.example.com\x00\x50"
    set_user(client, b"somebody")
    client.address.family = 4
    client.address.bytes[0] = 192
    client.address.bytes[3] = 17
    client.request.method = M_GET
    client.head = keep_bytes(head, len(head), OF_REQUESTS)
    client.request.path_at = 4
    client.request.path_len = head.index(b" HTTP/1.1") - 4
    began = perf_counter()
    for _i in range(n):
        journal.write(client, OK)
    took = perf_counter() - began
    give_block(&client.head)
    return took


def parse_hellos(bytes text, long n):
    cdef ClientHello hello
    cdef const char *data = text
    cdef size_t length = len(text)
    cdef long _i
    cdef Protocol got = UNKNOWN
    began = perf_counter()
    for _i in range(n):
        got = read_client_opening(&hello, data, length)
    took = perf_counter() - began
    assert got == TLS
    return took


def keep_hellos(bytes text, int wanted, long n):
    """What is done with a tunnel's first bytes. `wanted`: bits of Fingerprint."""
    cdef ClientHello hello
    cdef const char *data = text
    cdef size_t length = len(text)
    cdef long _i
    began = perf_counter()
    for _i in range(n):
        free(make_opening(read_client_opening(&hello, data, length), &hello, wanted))
    return perf_counter() - began


def peek_hellos(int fd, int wanted, long n):
    """The same, of bytes in a socket, which stay there."""
    cdef ClientHello hello
    cdef char[MOST_HELLO] data
    cdef Socket sock
    cdef ssize_t length
    cdef long _i
    memset(&sock, 0, sizeof(sock))
    sock.fd = fd
    sock.ready = CAN_READ
    began = perf_counter()
    for _i in range(n):
        length = try_peek(&sock, data, MOST_HELLO)
        free(make_opening(read_client_opening(&hello, data, length), &hello, wanted))
    took = perf_counter() - began
    assert length > 0
    return took


def keep_new_hellos(bytes text, int wanted, long n):
    """The same if each has lists that no earlier one had."""
    cdef ClientHello hello
    cdef char[MOST_HELLO] copy
    cdef size_t length = len(text)
    cdef uint8_t *cipher
    cdef uint8_t *signature
    cdef long _i
    assert length <= sizeof(copy)
    memcpy(copy, <const char *>text, length)
    read_client_opening(&hello, copy, length)
    cipher = <uint8_t *>hello.ciphers.at + hello.ciphers.n - 2
    signature = <uint8_t *>hello.signatures.at
    began = perf_counter()
    for _i in range(n):
        cipher[0] = signature[0] = <uint8_t>(_i >> 8)
        cipher[1] = signature[1] = <uint8_t>_i
        free(make_opening(read_client_opening(&hello, copy, length), &hello, wanted))
    return perf_counter() - began


def record_events(FlightRecorder recorder, long n):
    """Those of two connections by turns, so that none is added to the one before."""
    cdef char[32] connections
    cdef long _i
    began = perf_counter()
    for _i in range(n):
        note(recorder, connections + 16 * (_i & 1), 1000 + _i, E_UP, 0, 1)
    return perf_counter() - began


def move_deadlines(Wheel wheel, long n):
    """One that is moved to a later time: what every byte of a session does."""
    cdef Timer timer
    cdef long _i
    timer.prev = timer.next = NULL
    timer.filed_tick = timer.deadline_ms = 0
    wheel.arm(&timer, wheel.now_ms + 10000)
    began = perf_counter()
    for _i in range(n):
        wheel.arm(&timer, wheel.now_ms + 10000 + (_i & 4095))
    took = perf_counter() - began
    wheel.disarm(&timer)
    return took


def arm_and_disarm(Wheel wheel, long n):
    cdef Timer timer
    cdef long _i
    timer.prev = timer.next = NULL
    timer.filed_tick = timer.deadline_ms = 0
    began = perf_counter()
    for _i in range(n):
        wheel.arm(&timer, wheel.now_ms + 10000)
        wheel.disarm(&timer)
    return perf_counter() - began
