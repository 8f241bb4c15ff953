# cython: language_level=3, boundscheck=False, wraparound=False
"""The common part of connections of TLS: certificates, versions, ciphers, authorities.

A listener has one SSL_CTX for each set of certificates that serves a name: a set holds at most
one certificate of a kind of key (RSA, ECDSA, Ed25519), and libssl takes the one that the client
can verify. The first certificate's set serves clients that name no server, or an unknown one.

What is switched off, and why: versions before 1.2 (RFC 8996), compression (RFC 7525 section 3.3),
renegotiation (CVE-2009-3555; a client could also demand a handshake again and again), early data
(RFC 8446 section 8: it can be replayed). Sessions are kept by clients alone, as tickets.
"""

import hashlib
from typing import NamedTuple
from libc.string cimport memcpy, strlen
from cpython.ref cimport Py_DECREF, Py_INCREF
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.authorities cimport distrust, trust, trust_system, verify_clients
from cutthrough.net.tls.certificates cimport Loaded, load, name_in, why
from cutthrough.net.tls.certificates import TlsError
from cutthrough.net.tls.key_readers cimport library_of_clients
from cutthrough.net.tls.keys cimport on_secret
from cutthrough.net.tls.openssl cimport (
    CRYPTO_EX_DATA, EVP_CIPHER, EVP_CIPHER_CTX, EVP_MAC_CTX, OSSL_LIB_CTX, OSSL_PARAM, SSL,
    SSL_CTX, X509)
from cutthrough.net.tls.sessions cimport drop_servers, drop_sessions, keep_by_name, keep_sessions
from cutthrough.net.tls.ticket_keys cimport TicketKey, TicketKeys
from cutthrough.net.transport cimport HANDSHAKE_DENIED, HANDSHAKE_INVALID, HANDSHAKE_UNNAMED

cdef enum:
    # Seconds in which a session can be resumed; RFC 8446 section 4.6.1 allows 7 days. nginx and
    # HAProxy have 300: a browser that comes back after lunch would pay again
    SESSION_S = 7200
    ACCESS_DENIED = 49          # alerts (RFC 8446 section 6)
    INTERNAL_ERROR = 80
    UNRECOGNIZED_NAME = 112

# X25519 first: the fastest. Others that OpenSSL would allow cost a server ten times as much. OpenSSL
# 3.5 sends a share of each "*", else of the first: who lacks ML-KEM asks again. AWS-LC sends both
GROUPS = (b"*X25519MLKEM768:*X25519:P-256:P-384",
          b"X25519MLKEM768:X25519:P-256:P-384", b"X25519:P-256:P-384")
# AES-128 first, as in Go: its handshakes hash with SHA-256, which processors have, not SHA-384
CIPHERS = b"ECDHE+AESGCM+AES128:ECDHE+AESGCM:ECDHE+CHACHA20"
SUITES = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

# Of our own certificate as a client: its key may be of a kind that no client's offer knows
cdef const char *OWN_SIGNATURES = (
    b"ECDSA+SHA256:ECDSA+SHA384:ECDSA+SHA512:ed25519:ed448:RSA-PSS+SHA256:RSA-PSS+SHA384:"
    b"RSA-PSS+SHA512:RSA+SHA256:RSA+SHA384:RSA+SHA512")

HTTP_11 = b"\x08http/1.1\x08http/1.0"        # curl -0 offers the latter alone
HTTP_2_OR_11 = b"\x02h2\x08http/1.1\x08http/1.0"
cdef int shared_index = openssl.SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_shared)

# Fetched once: by EVP_aes_256_cbc each ticket would look it up again
cdef EVP_CIPHER *of_tickets = openssl.EVP_CIPHER_fetch(NULL, b"AES-256-CBC", NULL)
if of_tickets == NULL:
    raise ImportError("libssl has no AES-256-CBC")

# Why the server name of the handshake at hand is refused, one of Handshake; 0: it is not
cdef int refusal = 0

# Of tickets that nobody shall resume: libssl needs some key
cdef TicketKey of_no_use
if openssl.RAND_bytes(<unsigned char *>&of_no_use, sizeof(TicketKey)) <= 0:
    raise ImportError("libcrypto has no random numbers")


cdef class ContextReference:
    """Owns a reference to an SSL_CTX."""
    cdef SSL_CTX *ctx

    def __dealloc__(self):
        openssl.SSL_CTX_free(self.ctx)


cdef class Shared:
    """What the callbacks of one SSL_CTX need; lives as long as it."""
    cdef dict by_name           # host -> ContextReference, None for this one; "*.b.c" for a.b.c
    cdef dict ocsp              # address of the X509 -> bytes
    cdef TicketKeys keys
    cdef bint is_strict         # a name that is not in by_name is refused
    cdef bint is_judged_apart   # its clients' certificates; no session is resumed, nor can be


cdef class TlsContext:

    def __dealloc__(self):
        drop_sessions(&self.sessions)
        drop_servers(self.servers)
        openssl.SSL_CTX_free(self.ctx)

    cdef bint speak_for(self, SSL *ssl, bytes name) except -1:
        return False

    def why_silent(self, bytes name):
        """Returns why no certificate can be made for this name; "": one can."""
        return ""


class ClientCheck(NamedTuple):
    """How a listener judges the certificates of its clients."""

    ca: bytes = b""                 # PEM; of the authorities
    crl: bytes = b""                # PEM; empty: nobody looks
    certificate: str = "none"       # or optional, or required
    # (name, PEM of the authorities): clients that name this server need a certificate of those
    by_name: tuple = ()


cdef class TlsServer(TlsContext):
    """A listener's side."""

    def __init__(self, pairs, *, min_version="1.2", ciphers="", groups="",
                 clients=ClientCheck(), TicketKeys keys=None, bint http2=False,
                 bint sni_strict=False):
        """`pairs`: Pair objects, the first for clients that name no server. `ciphers`: names
        joined by colons, of either version; `groups`: likewise, the first is preferred; "": our
        choice. `keys`: of tickets; None: no session can be resumed. `http2`: is preferred to
        HTTP/1.1. `sni_strict`: a client has to name a server that a certificate has. Raises
        TlsError."""
        cdef ContextReference context
        cdef Shared shared
        loaded = [load(pair) for pair in pairs]
        if not loaded:
            raise TlsError("", "a TLS listener needs a certificate")
        if clients.certificate != "none" and not clients.ca:
            raise TlsError("", "client certificates need client_ca, which verifies them")
        self.names_peer = clients.certificate != "none" or bool(clients.by_name)
        self.certificates = [(<Loaded>certificate).about for certificate in loaded]
        by_name, first = sets_of(loaded)
        judged = with_checks(by_name, dict(clients.by_name))
        # A session made under other rules for clients must not be resumed here
        scope = hashlib.sha256(b"\0".join((
            clients.certificate.encode(), clients.ca, clients.crl,
            *(part for name, ca in clients.by_name for part in (name.encode(), ca))))).digest()
        contexts = {}
        for chosen, ca in {(first, b""), *judged.values()}:
            context = ContextReference()
            context.ctx = new_context(openssl.TLS_server_method(), min_version, ciphers)
            if groups and not openssl.SSL_CTX_set1_groups_list(context.ctx, groups.encode()):
                raise TlsError("", why(f"a group of {groups!r} is unknown"))
            set_up_server(context.ctx, scope, keys, [loaded[i] for i in chosen])
            if http2:
                openssl.SSL_CTX_set_alpn_select_cb(context.ctx, on_alpn, <void *>HTTP_2_OR_11)
            if ca or clients.certificate != "none":
                verify_clients(context.ctx, ca or clients.ca, clients.crl,
                               bool(ca) or clients.certificate == "required")
            contexts[chosen, ca] = context
            shared = <Shared>openssl.SSL_CTX_get_ex_data(context.ctx, shared_index)
            shared.is_judged_apart = bool(ca)
        context = contexts.pop((first, b""))
        shared = <Shared>openssl.SSL_CTX_get_ex_data(context.ctx, shared_index)
        shared.by_name = {name: contexts.get(key) for name, key in judged.items()}
        shared.is_strict = sni_strict
        openssl.SSL_CTX_set_tlsext_servername_callback(context.ctx, on_server_name)
        openssl.SSL_CTX_up_ref(context.ctx)
        self.ctx = context.ctx


cdef class TlsClient(TlsContext):
    """A way out: to servers that have a certificate of one of these authorities."""

    def __init__(self, *, ca=b"", crl=b"", pair=None, min_version="1.2", alpn="http/1.1",
                 resumes=""):
        """`ca`: PEM; empty: the system's authorities. `crl`: PEM, their lists of revoked
        certificates; empty: nobody looks. `pair`: our own certificate. `alpn`: the
        protocols that are offered, with commas between; "": none. `resumes`: sessions;
        "server": all connections lead to one server, by one name; "name": to many; "": none.
        Raises TlsError."""
        cdef bytes wire
        cdef ContextReference context = ContextReference()
        context.ctx = new_context(
            openssl.TLS_client_method(), min_version, "", library_of_clients())
        openssl.SSL_CTX_set_verify(
            context.ctx, openssl.SSL_VERIFY_PEER, openssl.LIBSSL_VERIFY)
        if ca:
            trust(context.ctx, ca)
        else:
            trust_system(context.ctx)
        if crl:
            distrust(context.ctx, crl, "origin_crl")
        if pair is not None:
            use(context.ctx, load(pair))
            openssl.SSL_CTX_set1_client_sigalgs_list(context.ctx, OWN_SIGNATURES)
        if alpn:
            wire = b"".join(bytes([len(protocol)]) + protocol.encode() for protocol in alpn.split(","))
            if openssl.SSL_CTX_set_alpn_protos(context.ctx, wire, <unsigned int>len(wire)):
                raise MemoryError
        if resumes == "server":
            keep_sessions(context.ctx, &self.sessions)
        elif resumes:
            self.servers = keep_by_name(context.ctx)
            if self.servers == NULL:
                raise MemoryError
        openssl.SSL_CTX_up_ref(context.ctx)
        self.ctx = context.ctx
        self.certificates = []


# --- making contexts


cdef SSL_CTX *new_context(const openssl.SSL_METHOD *method, min_version, str ciphers,
                          OSSL_LIB_CTX *library=NULL) except NULL:
    cdef SSL_CTX *ctx = openssl.SSL_CTX_new_ex(library, NULL, method)
    if ctx == NULL:
        raise MemoryError
    try:
        openssl.SSL_CTX_set_options(
            ctx, openssl.SSL_OP_NO_RENEGOTIATION | openssl.SSL_OP_NO_COMPRESSION
            | openssl.SSL_OP_CIPHER_SERVER_PREFERENCE | openssl.SSL_OP_PRIORITIZE_CHACHA
            | openssl.SSL_OP_NO_RX_CERTIFICATE_COMPRESSION)     # `refuse_many` reads no packed ones
        openssl.SSL_CTX_set_mode(
            ctx, openssl.SSL_MODE_RELEASE_BUFFERS | openssl.SSL_MODE_ENABLE_PARTIAL_WRITE
            | openssl.SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER)
        openssl.SSL_CTX_set_keylog_callback(ctx, on_secret)
        openssl.SSL_CTX_set_session_cache_mode(ctx, openssl.SSL_SESS_CACHE_OFF)
        if not openssl.SSL_CTX_set_min_proto_version(
                ctx, {"1.2": openssl.TLS1_2_VERSION, "1.3": openssl.TLS1_3_VERSION}[min_version]):
            raise TlsError("", why(f"TLS {min_version} is not available"))
        set_ciphers(ctx, ciphers)
        if not openssl.libssl_harden(ctx):
            raise MemoryError
        for groups in GROUPS:
            if openssl.SSL_CTX_set1_groups_list(ctx, groups):
                break
            openssl.ERR_clear_error()
    except BaseException:
        openssl.SSL_CTX_free(ctx)
        raise
    return ctx


cdef int set_ciphers(SSL_CTX *ctx, str ciphers) except -1:
    names = [name for name in ciphers.split(":") if name]
    suites = ":".join(name for name in names if name.startswith("TLS_")).encode()
    older = ":".join(name for name in names if not name.startswith("TLS_")).encode()
    if not openssl.SSL_CTX_set_cipher_list(ctx, older or CIPHERS) or (
            not openssl.SSL_CTX_set_ciphersuites(ctx, suites or SUITES)):
        raise TlsError("", why(f"no cipher of {ciphers!r} can be used"))
    if not suites:
        openssl.libssl_prefer_aes_128(ctx)
    return 0


cdef int set_up_server(SSL_CTX *ctx, bytes scope, TicketKeys keys, list loaded) except -1:
    cdef Shared shared = Shared()
    cdef Loaded certificate
    openssl.SSL_CTX_set_options(ctx, openssl.SSL_OP_IGNORE_UNEXPECTED_EOF)
    # Without a search for a chain in each handshake, because the files have it; libssl would also
    # verify it
    openssl.SSL_CTX_set_mode(ctx, openssl.SSL_MODE_NO_AUTO_CHAIN)
    openssl.SSL_CTX_set_timeout(ctx, SESSION_S)
    openssl.SSL_CTX_set_session_psk_dhe_timeout(ctx, SESSION_S)
    openssl.SSL_CTX_set_session_id_context(ctx, scope, <unsigned int>len(scope))
    openssl.SSL_CTX_set_max_early_data(ctx, 0)
    shared.by_name, shared.ocsp, shared.keys = {}, {}, keys
    for certificate in loaded:
        use(ctx, certificate)
        if certificate.pair.ocsp:
            shared.ocsp[<size_t>certificate.leaf] = certificate.pair.ocsp
    if shared.ocsp:
        openssl.SSL_CTX_set_tlsext_status_cb(ctx, on_status)
        openssl.SSL_CTX_set_tlsext_status_arg(ctx, <void *>shared)
    if keys is None:
        openssl.SSL_CTX_set_options(ctx, openssl.SSL_OP_NO_TICKET)
        openssl.SSL_CTX_set_num_tickets(ctx, 0)
    else:
        openssl.SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket)
    openssl.SSL_CTX_set_alpn_select_cb(ctx, on_alpn, <void *>HTTP_11)
    openssl.SSL_CTX_set_tlsext_servername_arg(ctx, <void *>shared)
    if not openssl.SSL_CTX_set_ex_data(ctx, shared_index, <void *>shared):
        raise MemoryError
    Py_INCREF(shared)                       # see free_shared
    return 0


cdef int use(SSL_CTX *ctx, Loaded certificate) except -1:
    cdef Loaded more
    if not openssl.SSL_CTX_use_certificate(ctx, certificate.leaf):
        raise TlsError(certificate.pair.name, why("the certificate cannot be used"))
    if not openssl.SSL_CTX_use_PrivateKey(ctx, certificate.key):
        raise TlsError(certificate.pair.name, why("the key cannot be used"))
    for more in certificate.chain:
        if not openssl.SSL_CTX_add1_chain_cert(ctx, more.leaf):
            raise TlsError(certificate.pair.name, why("the chain cannot be used"))
    return 0


cdef tuple sets_of(list loaded):
    """Returns {name: indices of its certificates} and the indices for clients that name no
    server: one certificate for each kind of key, the first that serves the name."""
    by_name, kinds = {}, [certificate.key for certificate in map(about, loaded)]
    for i, certificate in enumerate(map(about, loaded)):
        for host in certificate.hosts:
            chosen = by_name.setdefault(host, ())
            if kinds[i] not in [kinds[j] for j in chosen]:
                by_name[host] = (*chosen, i)
    first = (0,)
    for host in about(loaded[0]).hosts:
        if by_name[host][0] == 0:
            first = max(first, by_name[host], key=len)
    return by_name, first


cdef dict with_checks(dict by_name, dict checks):
    """{name: (its certificates, the authorities of its clients; empty: the listener's)}"""
    for name in checks:
        chosen = by_name.get(name) or by_name.get(wildcard_of(name))
        if chosen is None:
            raise TlsError("client_ca_by_name", f"no certificate has the name {name}")
        by_name.setdefault(name, chosen)
    return {name: (chosen, checks.get(name) or checks.get(wildcard_of(name), b""))
            for name, chosen in by_name.items()}


cdef str wildcard_of(str name):
    return "*." + name.partition(".")[2]


cdef object about(Loaded certificate):
    return certificate.about


# --- callbacks of a handshake


cdef void free_shared(void *parent, void *pointer, CRYPTO_EX_DATA *data, int index, long argl,
                      void *argp) noexcept with gil:
    if pointer != NULL:
        Py_DECREF(<object>pointer)


cdef int on_server_name(SSL *ssl, int *alert, void *arg) noexcept with gil:
    try:
        return choose_by_name(ssl, <Shared>arg, alert)
    except MemoryError:                 # the first certificate's set may ask for less
        return refuse(alert, INTERNAL_ERROR, HANDSHAKE_INVALID)


cdef int choose_by_name(SSL *ssl, Shared shared, int *alert) except? -1:
    cdef const char *text = openssl.SSL_get_servername(ssl, openssl.TLSEXT_NAMETYPE_host_name)
    context = shared                    # none of that name
    if text != NULL:
        name = text.lower().decode("latin-1")
        context = shared.by_name.get(name, shared.by_name.get(wildcard_of(name), shared))
    if context is shared:
        return refuse(alert, UNRECOGNIZED_NAME, HANDSHAKE_UNNAMED) if shared.is_strict else (
            openssl.SSL_TLSEXT_ERR_OK)
    return openssl.SSL_TLSEXT_ERR_OK if context is None else (
        choose(ssl, (<ContextReference>context).ctx, alert))


cdef int choose(SSL *ssl, SSL_CTX *ctx, int *alert) noexcept:
    """A session of TLS 1.3 is read before the name, and may be another name's: it would stand for a
    certificate that was not asked for (CVE-2025-23419 of nginx)."""
    openssl.SSL_set_SSL_CTX(ssl, ctx)
    if not (<Shared>openssl.SSL_CTX_get_ex_data(ctx, shared_index)).is_judged_apart:
        return openssl.SSL_TLSEXT_ERR_OK
    if openssl.SSL_session_reused(ssl):
        return refuse(alert, ACCESS_DENIED, HANDSHAKE_DENIED)
    openssl.SSL_set_verify(ssl, openssl.SSL_CTX_get_verify_mode(ctx), openssl.LIBSSL_VERIFY)
    openssl.SSL_set_options(ssl, openssl.SSL_OP_NO_TICKET)
    openssl.SSL_set_num_tickets(ssl, 0)
    return openssl.SSL_TLSEXT_ERR_OK


cdef int refuse(int *alert, int number, int handshake) noexcept:
    global refusal
    refusal = handshake
    alert[0] = number
    return openssl.SSL_TLSEXT_ERR_ALERT_FATAL


cdef int take_refusal() noexcept nogil:
    global refusal
    cdef int handshake = refusal
    refusal = 0
    return handshake


cdef int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                 const unsigned char *offered, unsigned int n, void *arg) noexcept nogil:
    if openssl.SSL_select_next_proto(
            <unsigned char **>out, out_len, <const unsigned char *>arg,
            <unsigned int>strlen(<const char *>arg), offered, n) == (
            openssl.OPENSSL_NPN_NEGOTIATED):
        return openssl.SSL_TLSEXT_ERR_OK
    return openssl.SSL_TLSEXT_ERR_ALERT_FATAL


cdef int on_status(SSL *ssl, void *arg) noexcept with gil:
    """Staples the OCSP response of the certificate that was chosen (RFC 6066 section 8)."""
    cdef bytes response = (<Shared>openssl.SSL_CTX_get_ex_data(
        openssl.SSL_get_SSL_CTX(ssl), shared_index)).ocsp.get(
            <size_t>openssl.SSL_get_certificate(ssl))
    cdef void *copy = NULL if response is None else openssl.OPENSSL_malloc(len(response))
    if copy == NULL:
        return openssl.SSL_TLSEXT_ERR_NOACK
    memcpy(copy, <char *>response, len(response))
    openssl.SSL_set_tlsext_status_ocsp_resp(ssl, copy, len(response))
    return openssl.SSL_TLSEXT_ERR_OK


cdef int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                   EVP_MAC_CTX *mac, int encrypts) noexcept with gil:
    """0: no key; 1; 2: as 1, and the ticket is to be renewed; < 0: failed."""
    cdef TicketKeys keys = (<Shared>openssl.SSL_CTX_get_ex_data(
        openssl.SSL_get_SSL_CTX(ssl), shared_index)).keys
    cdef const TicketKey *key = keys.newest() if encrypts else keys.find(name)
    cdef OSSL_PARAM params[3]
    if key == NULL and encrypts and openssl.LIBSSL_NEEDS_TICKET_KEY:
        key = &of_no_use
    if key == NULL:
        return 0
    if encrypts:
        if openssl.RAND_bytes(iv, 16) <= 0:
            return -1
        memcpy(name, key.name, sizeof(key.name))
        if not openssl.EVP_EncryptInit_ex(cipher, of_tickets, NULL, key.cipher, iv):
            return -1
    elif not openssl.EVP_DecryptInit_ex(cipher, of_tickets, NULL, key.cipher, iv):
        return -1
    params[0] = openssl.OSSL_PARAM_construct_octet_string(
        b"key", <void *>key.mac, sizeof(key.mac))
    params[1] = openssl.OSSL_PARAM_construct_utf8_string(b"digest", b"SHA256", 0)
    params[2] = openssl.OSSL_PARAM_construct_end()
    if not openssl.EVP_MAC_CTX_set_params(mac, params):
        return -1
    # A client of TLS 1.3 is to use a ticket once (RFC 8446 appendix C.4)
    return 1 if encrypts or key == keys.newest() and (
        openssl.SSL_version(ssl) != openssl.TLS1_3_VERSION) else 2


cdef bint needs_peer(const SSL *ssl) noexcept nogil:
    return openssl.SSL_get_verify_mode(ssl) & openssl.SSL_VERIFY_FAIL_IF_NO_PEER_CERT


cdef void *name_of_peer(void *context, SSL *ssl) noexcept nogil:
    return read_name(ssl) if (<TlsContext>context).names_peer else NULL


cdef void *read_name(SSL *ssl) noexcept with gil:
    cdef X509 *certificate = openssl.SSL_get0_peer_certificate(ssl)
    cdef bytes name = None if certificate == NULL else name_in(certificate)
    if name is None:
        return NULL
    Py_INCREF(name)
    return <void *>name
