# cython: language_level=3, boundscheck=False, wraparound=False
"""Sessions that servers have given us, for the next connections to them.

A resumed handshake has no certificates and no signatures. The keys are new in TLS 1.3, and
nothing is sent before the server has answered: no early data (R47).

A ticket of TLS 1.3 is used once, because two connections with one ticket could be seen to belong
together (RFC 8446 appendix C.4). A session of TLS 1.2 is used until the server declines it.

Sessions are kept for one set of authorities and one name, because a resumed handshake does not
verify the server's certificate again, and a session ends with its first certificate (R48).
A way out that leads to many servers keeps them by name: those of two names of one hash in turn.
A server chooses how long its chain and its tickets are; what is long is not kept.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, strcmp, strlen
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.openssl cimport SSL, SSL_CTX, SSL_SESSION, X509

cdef int place = openssl.SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL)
cdef int place_of_servers = openssl.SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL)


cdef int keep_sessions(SSL_CTX *ctx, Sessions *sessions) except -1:
    if not openssl.SSL_CTX_set_ex_data(ctx, place, sessions):
        raise MemoryError
    listen(ctx)
    return 0


cdef Server *keep_by_name(SSL_CTX *ctx) noexcept:
    cdef Server *servers = <Server *>calloc(MOST_SERVERS, sizeof(Server))
    if servers != NULL and not openssl.SSL_CTX_set_ex_data(ctx, place_of_servers, servers):
        free(servers)
        return NULL
    listen(ctx)
    return servers


cdef void listen(SSL_CTX *ctx) noexcept nogil:
    openssl.SSL_CTX_set_session_cache_mode(
        ctx, openssl.SSL_SESS_CACHE_CLIENT | openssl.SSL_SESS_CACHE_NO_INTERNAL)
    openssl.SSL_CTX_sess_set_new_cb(ctx, on_session)


cdef Sessions *sessions_of(Server *servers, const SSL *ssl) noexcept nogil:
    cdef const char *name = openssl.SSL_get_servername(ssl, openssl.TLSEXT_NAMETYPE_host_name)
    cdef size_t n = 0 if name == NULL else strlen(name)
    cdef uint64_t hashed = 14695981039346656037u            # FNV-1a
    cdef Server *server
    cdef size_t i
    if n == 0 or n >= NAME_BYTES:
        return NULL
    for i in range(n):
        hashed = (hashed ^ <unsigned char>name[i]) * 1099511628211u
    server = &servers[(hashed ^ (hashed >> 32)) & (MOST_SERVERS - 1)]
    if strcmp(server.name, name) != 0:
        drop_sessions(&server.sessions)
        server.sessions.refused = False
        memcpy(server.name, name, n + 1)
    return &server.sessions


cdef void drop_servers(Server *servers) noexcept nogil:
    cdef int i
    if servers != NULL:
        for i in range(MOST_SERVERS):
            drop_sessions(&servers[i].sessions)
        free(servers)


cdef int on_session(SSL *ssl, SSL_SESSION *session) noexcept nogil:
    """1: we keep its reference."""
    cdef SSL_CTX *ctx = openssl.SSL_get_SSL_CTX(ssl)
    cdef Server *servers = <Server *>openssl.SSL_CTX_get_ex_data(ctx, place_of_servers)
    cdef Sessions *s = <Sessions *>openssl.SSL_CTX_get_ex_data(ctx, place)
    if servers != NULL:
        s = sessions_of(servers, ssl)
    if s == NULL or s.refused or size_of(ssl, session) > MOST_STORED:
        return 0
    if s.n == MOST_SESSIONS:
        openssl.SSL_SESSION_free(s.stored[0])
        s.n -= 1
        memmove(&s.stored[0], &s.stored[1], s.n * sizeof(SSL_SESSION *))
    s.stored[s.n] = session
    s.n += 1
    return 1


cdef size_t size_of(SSL *ssl, SSL_SESSION *session) noexcept nogil:
    """Bytes of the ticket and of all certificates that the server has sent."""
    cdef void *chain = openssl.SSL_get_peer_cert_chain(ssl)
    cdef const unsigned char *ticket = NULL
    cdef size_t n = 0
    cdef int i
    openssl.SSL_SESSION_get0_ticket(session, &ticket, &n)
    for i in range(0 if chain == NULL else openssl.OPENSSL_sk_num(chain)):
        n += max(0, openssl.i2d_X509(<X509 *>openssl.OPENSSL_sk_value(chain, i), NULL))
    return n


cdef bint offer_session(Sessions *s, SSL *ssl) noexcept nogil:
    cdef SSL_SESSION *session
    cdef bint offered = False
    while s != NULL and s.n and not offered:
        session = s.stored[s.n - 1]
        offered = is_usable(session) and openssl.SSL_set_session(ssl, session) == 1
        if not offered or openssl.SSL_SESSION_get_protocol_version(session) >= (
                openssl.TLS1_3_VERSION):
            s.n -= 1
            openssl.SSL_SESSION_free(session)       # `ssl` has a reference of its own
    return offered


cdef bint is_usable(SSL_SESSION *session) noexcept nogil:
    cdef X509 *certificate = openssl.SSL_SESSION_get0_peer(session)
    return (openssl.SSL_SESSION_is_resumable(session) == 1 and certificate != NULL
            and openssl.X509_cmp_current_time(openssl.X509_get0_notAfter(certificate)) > 0)


cdef void refuse_sessions(Sessions *s) noexcept nogil:
    s.refused = True
    drop_sessions(s)


cdef void drop_sessions(Sessions *s) noexcept nogil:
    while s.n:
        s.n -= 1
        openssl.SSL_SESSION_free(s.stored[s.n])
