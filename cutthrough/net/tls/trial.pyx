# cython: language_level=3, boundscheck=False, wraparound=False
"""A trial of our records against the libssl that is loaded (R85).

If a process uses our records, it tries first, because `keys` takes keys and numbers of records from
libssl by ways that no version promises to keep: with each version and suite a connection of libssl's
and one of ours exchange bytes over a pair of sockets, across renewals of the key. It takes 9.6 ms
of CPU, once (OpenSSL 3.0: docs/tls.md).
"""

import time

from cutthrough.net cimport linux

from cutthrough.net.sysio cimport CAN_READ, CAN_WRITE, sys_close
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.context cimport TlsContext, new_context
from cutthrough.net.tls.openssl cimport EVP_PKEY, X509
from cutthrough.net.tls.wire cimport Tls, begin, tls_of, uncount
from cutthrough.net.transport cimport HANDSHAKE_DONE, TLS, Socket, transport_of
from cutthrough.net.tls import transport as tls      # gives the transport its row

cdef enum:
    MOST_TURNS = 16         # of a handshake

# OpenSSL's first version with all that is used, and the last whose connections were tested
cdef unsigned long FIRST_KNOWN = 0x30000000
cdef unsigned long LAST_KNOWN = 0x305FFFFF
LATEST = "3.5"

SUITES = (
    (True, b"TLS_AES_128_GCM_SHA256"), (True, b"TLS_AES_256_GCM_SHA384"),
    (True, b"TLS_CHACHA20_POLY1305_SHA256"), (False, b"ECDHE-ECDSA-AES128-GCM-SHA256"),
    (False, b"ECDHE-ECDSA-AES256-GCM-SHA384"), (False, b"ECDHE-ECDSA-CHACHA20-POLY1305"))
DATA = bytes(range(256)) * 72       # more than a record

cdef object reason = None           # of a trial that has ended


def why_no_own_records():
    """Returns the reason; "" if they can be used. Tries once in a process."""
    global reason
    if reason is None:
        reason = why_unknown(openssl.OpenSSL_version_num()) or try_all()
    return reason


def why_unknown(unsigned long version):
    """`version`: as OpenSSL_version_num has it. AWS-LC, which is of the build, has 1.1.1's."""
    if openssl.LIBSSL_COUNTS_RECORDS or FIRST_KNOWN <= version <= LAST_KNOWN:
        return ""
    return f"this OpenSSL is newer than {LATEST}, and unknown"


def try_all():
    """Returns what has failed first; "": nothing."""
    cdef TlsContext server = make_context(True)
    cdef TlsContext client = make_context(False)
    numbers = [tls.put(server), tls.put(client)]
    before = tls.set_own_records(True)
    try:
        # Each version as both sides
        for n, (is_13, suite) in enumerate(SUITES):
            if not try_suite(numbers, is_13, suite, n % 2):
                return f"a trial of {suite.decode()} has failed"
    finally:
        tls.set_own_records(before)
        for number in numbers:
            tls.remove(number)
    return ""


cdef TlsContext make_context(bint serves):
    """Makes a context for this trial alone: its certificate is not verified."""
    cdef TlsContext context = TlsContext.__new__(TlsContext)
    cdef X509 *certificate
    cdef EVP_PKEY *key
    context.ctx = new_context(
        openssl.TLS_server_method() if serves else openssl.TLS_client_method(), "1.2", "")
    if not serves:
        return context
    certificate, key = openssl.X509_new(), openssl.EVP_EC_gen(b"P-256")
    openssl.X509_set_version(certificate, 2)
    openssl.ASN1_TIME_set(openssl.X509_getm_notBefore(certificate), <long>time.time() - 86400)
    openssl.ASN1_TIME_set(openssl.X509_getm_notAfter(certificate), <long>time.time() + 86400)
    openssl.X509_set_pubkey(certificate, key)
    openssl.X509_sign(certificate, key, openssl.EVP_sha256())
    openssl.SSL_CTX_use_certificate(context.ctx, certificate)
    openssl.SSL_CTX_use_PrivateKey(context.ctx, key)
    openssl.X509_free(certificate)
    openssl.EVP_PKEY_free(key)
    return context


cdef bint try_suite(list numbers, bint is_13, bytes suite, bint connects) except -1:
    """`connects`: our records are the client's."""
    cdef int[2] pair
    cdef Socket ours, theirs
    if linux.socketpair(linux.AF_UNIX, linux.SOCK_STREAM | linux.SOCK_NONBLOCK
                        | linux.SOCK_CLOEXEC, 0, pair) < 0:
        return False
    ours = Socket(pair[0], CAN_READ | CAN_WRITE, TLS, numbers[connects])
    theirs = Socket(pair[1], CAN_READ | CAN_WRITE, TLS, numbers[not connects])
    try:
        return (open_side(&ours, True, connects, is_13, suite)
                and open_side(&theirs, False, not connects, is_13, suite)
                and shake(&ours, &theirs) and exchange(&ours, &theirs))
    finally:
        uncount(&theirs if connects else &ours)
        sys_close(&ours)
        sys_close(&theirs)


cdef bint open_side(Socket *s, bint own, bint connects, bint is_13, bytes suite) except -1:
    cdef Tls *t
    tls.set_own_records(own)
    t = begin(s, connects)
    if t == NULL:
        return False
    if is_13:
        return not connects or openssl.SSL_set_ciphersuites(t.ssl, suite) == 1
    return openssl.SSL_set_max_proto_version(t.ssl, openssl.TLS1_2_VERSION) == 1 and (
        not connects or openssl.SSL_set_cipher_list(t.ssl, suite) == 1)


cdef bint shake(Socket *ours, Socket *theirs) noexcept:
    cdef int turn = 0
    cdef int a = 0, b = 0
    while turn < MOST_TURNS and not (a == HANDSHAKE_DONE and b == HANDSHAKE_DONE) and a >= 0 and b >= 0:
        turn += 1
        a = transport_of(ours).handshake(ours)
        b = transport_of(theirs).handshake(theirs)
    return a == HANDSHAKE_DONE and b == HANDSHAKE_DONE


cdef bint exchange(Socket *ours, Socket *theirs) except -1:
    cdef Tls *t = tls_of(ours)
    for _ in range(3):
        if not (has_passed(theirs, ours) and has_passed(ours, theirs)):
            return False
        if t.ssl != NULL or t.records == NULL:
            return False                # libssl has kept the connection
        if t.records.keys.is_13:
            t.records.update_due = True
    return True


cdef bint has_passed(Socket *source, Socket *sink) except -1:
    cdef bytes data = DATA
    cdef bytearray out = bytearray(len(data))
    cdef ssize_t n = 0, r = 1
    cdef size_t want = len(data)
    if transport_of(source).send(source, <const char *>data, want, NULL, 0) != <ssize_t>want:
        return False
    while r > 0 and <size_t>n < want:
        r = transport_of(sink).recv(sink, <char *>out + n, want - n)
        n += max(r, 0)
    return out == data
