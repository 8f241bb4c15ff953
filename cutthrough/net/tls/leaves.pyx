# cython: language_level=3, boundscheck=False, wraparound=False
"""Certificates that are made for the connections of an interception (R55).

    name ─> cache ─> certificate ─┐
             └─> made, signed ────┴─> one connection's SSL; one SSL_CTX for all

A leaf is made in the loop: it takes 42 us, a tenth of the handshake that it is for, because all
leaves of a process share one key. To wake a thread and to be woken by it would take longer.

The leaf has one name, that of the server whose certificate was verified, and the extensions of
`cutthrough ca issue`. The context has no tickets, because a session would be resumed without a
look at the name.
"""

import time

from libc.stdint cimport uint64_t
from libc.string cimport memcpy, strlen
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.certificates cimport Loaded, load, seconds_of, why
from cutthrough.net.tls.certificates import Pair, TlsError
from cutthrough.net.tls.context cimport HTTP_2_OR_11, HTTP_11, new_context, set_up_server
from cutthrough.net.tls.openssl cimport (
    ASN1_OCTET_STRING, EVP_PKEY, SSL, X509, X509V3_CTX, X509_EXTENSION)

cdef enum:
    DAY_S = 86400
    BACKDATED_S = 2 * DAY_S         # for clients whose clock is slow
    # Baseline Requirements of the CA/Browser Forum, section 6.3.2: 200 days since March 2026
    LEAF_S = 197 * DAY_S
    FRESH_S = 30 * DAY_S            # a kept leaf of this age is made again
    MOST_COMMON_NAME = 64           # ub-common-name of RFC 5280, appendix A.1
    MOST_NAME = 255

# 2.5 KiB each
MOST_LEAVES = 4096

# The key of all leaves of this process, and its public half
cdef EVP_PKEY *leaf_key = NULL
cdef EVP_PKEY *public_key = NULL


cdef class Leaf:
    cdef X509 *certificate
    cdef long made_s

    def __dealloc__(self):
        openssl.X509_free(self.certificate)


cdef class Constraints:
    """Names that a certificate of an authority allows (RFC 5280 section 4.2.1.10)."""
    cdef openssl.NAME_CONSTRAINTS *own

    def __dealloc__(self):
        openssl.NAME_CONSTRAINTS_free(self.own)


cdef class TlsInterceptor(TlsContext):

    def __init__(self, bytes certificate, bytes key, most=MOST_LEAVES, bint http2=False):
        """`certificate`, `key`: PEM, of the authority; further certificates in it are sent to
        clients. `most`: leaves that are kept. `http2`: is preferred to HTTP/1.1. Raises
        TlsError."""
        cdef Leaf first
        cdef Loaded issuer = load(Pair(certificate, key, b"", "intercept_ca"))
        if not openssl.X509_check_ca(issuer.leaf):
            raise TlsError("intercept_ca", "is not the certificate of an authority")
        if openssl.EVP_PKEY_get_base_id(issuer.key) not in (
                openssl.EVP_PKEY_EC, openssl.EVP_PKEY_RSA):
            raise TlsError("intercept_ca", "has a key that is neither ECDSA nor RSA")
        openssl.X509_up_ref(issuer.leaf)
        openssl.EVP_PKEY_up_ref(issuer.key)
        self.issuer, self.issuer_key = issuer.leaf, issuer.key
        self.first_s = seconds_of(openssl.X509_get0_notBefore(self.issuer))
        self.last_s = seconds_of(openssl.X509_get0_notAfter(self.issuer))
        self.leaves = {}
        self.forbidden = {}
        self.constraints = []
        self.most = most
        self.makes_leaves = True
        self.certificates = [issuer.about]
        make_key()
        self.ctx = new_context(openssl.TLS_server_method(), "1.2", "")
        set_up_server(self.ctx, b"intercepted", None, [])
        openssl.SSL_CTX_set_alpn_select_cb(
            self.ctx, choose_protocol, <void *>(HTTP_2_OR_11 if http2 else HTTP_11))
        self.extensions[0] = self.extension(openssl.NID_basic_constraints, b"critical,CA:FALSE")
        self.extensions[1] = self.extension(openssl.NID_key_usage, b"critical,digitalSignature")
        self.extensions[2] = self.extension(openssl.NID_ext_key_usage, b"serverAuth")
        self.extensions[3] = self.extension(openssl.NID_subject_key_identifier, b"hash")
        self.extensions[4] = self.extension(openssl.NID_authority_key_identifier, b"keyid")
        first = self.make(b"a.invalid")         # raises now, not at the first connection
        self.minted = 0
        if openssl.LIBSSL_CHAINS_BY_KEY:
            openssl.SSL_CTX_use_certificate(self.ctx, first.certificate)
        for authority in [issuer, *issuer.chain]:
            self.constrain((<Loaded>authority).leaf)
            # A root is known to whom it is of use. Not add1_chain_cert: that would be the chain
            # of one kind of key, and each connection has a leaf of its own
            if openssl.X509_self_signed((<Loaded>authority).leaf, 0):
                continue
            openssl.X509_up_ref((<Loaded>authority).leaf)
            if not openssl.SSL_CTX_add_extra_chain_cert(self.ctx, (<Loaded>authority).leaf):
                openssl.X509_free((<Loaded>authority).leaf)
                raise TlsError("intercept_ca", why("the chain cannot be used"))

    def __dealloc__(self):
        cdef int i
        for i in range(5):
            openssl.X509_EXTENSION_free(<X509_EXTENSION *>self.extensions[i])
        openssl.X509_free(self.issuer)
        openssl.EVP_PKEY_free(self.issuer_key)

    cdef void *extension(self, int kind, const char *text) except NULL:
        cdef X509V3_CTX about
        cdef X509 *subject = openssl.X509_new()
        cdef X509_EXTENSION *extension
        if subject == NULL:
            raise MemoryError
        openssl.X509_set_pubkey(subject, public_key)
        openssl.X509V3_set_ctx(&about, self.issuer, subject, NULL, NULL, 0)
        extension = openssl.X509V3_EXT_conf_nid(NULL, &about, kind, text)
        openssl.X509_free(subject)
        if extension == NULL:
            raise TlsError("intercept_ca", why("cannot be used"))
        return extension

    cdef int constrain(self, X509 *authority) except -1:
        cdef Constraints constraints = Constraints()
        constraints.own = <openssl.NAME_CONSTRAINTS *>openssl.X509_get_ext_d2i(
            authority, openssl.NID_name_constraints, NULL, NULL)
        if constraints.own != NULL:
            self.constraints.append(constraints)
        return 0

    def why_silent(self, bytes name):
        cdef Leaf leaf
        if time.time() >= self.last_s:
            return "the authority has expired"
        if not self.constraints or name in self.leaves:
            return ""
        reason = self.forbidden.get(name)
        if reason is None:
            leaf = self.make(name)
            reason = self.why_forbidden(leaf)
            if reason:
                put(self.forbidden, name, reason, self.most)
            else:
                put(self.leaves, name, leaf, self.most)     # for the handshake that follows
        return reason

    cdef str why_forbidden(self, made):
        """Returns the constraint of the authority that the leaf's name breaks; "" if it breaks none."""
        cdef Leaf leaf = made
        cdef Constraints constraints
        cdef int error
        openssl.X509_check_purpose(leaf.certificate, -1, 0)     # finds its extensions
        for constraints in self.constraints:
            error = openssl.NAME_CONSTRAINTS_check(leaf.certificate, constraints.own)
            if error != openssl.X509_V_OK:
                return (<bytes>openssl.X509_verify_cert_error_string(error)).decode()
        return ""

    cdef bint speak_for(self, SSL *ssl, bytes name) except -1:
        cdef Leaf leaf = self.leaves.get(name)
        # A clock that was set back makes it too young: it may not be valid yet
        if leaf is None or not 0 <= time.time() - leaf.made_s <= FRESH_S:
            leaf = self.make(name)
            put(self.leaves, name, leaf, self.most)
        else:
            self.found += 1
        return (openssl.SSL_use_certificate(ssl, leaf.certificate) == 1
                and openssl.SSL_use_PrivateKey(ssl, leaf_key) == 1)

    cdef object make(self, bytes name):
        """Raises TlsError if the authority has expired."""
        cdef Leaf leaf = Leaf()
        cdef X509 *x = openssl.X509_new()
        cdef unsigned char address[16]
        cdef int n = read_address(name, address)
        cdef bint has_subject = n == 0 and len(name) <= MOST_COMMON_NAME
        cdef long now_s = <long>time.time()
        cdef uint64_t serial = 0
        cdef int i
        if x == NULL:
            raise MemoryError
        leaf.certificate = x
        leaf.made_s = now_s
        if now_s >= self.last_s:
            raise TlsError("intercept_ca", "the authority has expired")
        openssl.X509_set_version(x, 2)
        if openssl.RAND_bytes(<unsigned char *>&serial, sizeof(serial)) <= 0:
            raise TlsError("intercept_ca", why("no random numbers"))
        openssl.ASN1_INTEGER_set_uint64(openssl.X509_get_serialNumber(x), serial >> 1 | 1)
        openssl.ASN1_TIME_set(
            openssl.X509_getm_notBefore(x), max(now_s - BACKDATED_S, self.first_s))
        # Both ends belong to the time of validity (RFC 5280 section 4.1.2.5)
        openssl.ASN1_TIME_set(
            openssl.X509_getm_notAfter(x), min(now_s - BACKDATED_S + LEAF_S - 1, self.last_s))
        openssl.X509_set_issuer_name(x, openssl.X509_get_subject_name(self.issuer))
        if has_subject:
            openssl.X509_NAME_add_entry_by_NID(
                openssl.X509_get_subject_name(x), openssl.NID_commonName, openssl.V_ASN1_UTF8STRING,
                name, <int>len(name), -1, 0)
        openssl.X509_set_pubkey(x, public_key)
        for i in range(5):
            openssl.X509_add_ext(x, <X509_EXTENSION *>self.extensions[i], -1)
        add_name(x, name, address, n, not has_subject)
        if openssl.X509_sign(x, self.issuer_key, openssl.EVP_sha256()) <= 0:
            raise TlsError("intercept_ca", why("cannot sign"))
        self.minted += 1
        return leaf

    def leaf(self, str name):
        """Makes a leaf, and returns it as DER."""
        cdef Leaf leaf = self.make(name.encode())
        cdef unsigned char *out = NULL
        cdef int n = openssl.i2d_X509(leaf.certificate, &out)
        data = (<char *>out)[:n]
        openssl.OPENSSL_free(out)
        return data

    @property
    def kept(self):
        return len(self.leaves)


cdef int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                         const unsigned char *offered, unsigned int n, void *arg) noexcept nogil:
    """HTTP/2 if it is offered, or HTTP/1.1. If neither is, the connection goes on without a choice,
    and is read as HTTP/1.1."""
    cdef unsigned int i = 0
    if openssl.SSL_select_next_proto(
            <unsigned char **>out, out_len, <const unsigned char *>arg,
            <unsigned int>strlen(<const char *>arg), offered, n) == (
            openssl.OPENSSL_NPN_NEGOTIATED):
        return openssl.SSL_TLSEXT_ERR_OK
    while i + 2 < n:
        if offered[i] == 2 and offered[i + 1] == b"h" and offered[i + 2] == b"2":
            return openssl.SSL_TLSEXT_ERR_ALERT_FATAL
        i += 1 + offered[i]
    return openssl.SSL_TLSEXT_ERR_NOACK


cdef int make_key() except -1:
    """The public half is read into a key of the same curve. So OpenSSL 3.0 keeps it in a form
    that a certificate takes in 3 us; the form of the key itself takes 160 us."""
    global leaf_key, public_key
    cdef unsigned char *point = NULL
    cdef const unsigned char *at
    cdef int n
    if leaf_key != NULL:
        return 0
    leaf_key = openssl.EVP_EC_gen(b"P-256")
    public_key = openssl.EVP_EC_gen(b"P-256")
    n = openssl.i2d_PublicKey(leaf_key, &point)
    at = point
    if n <= 0 or openssl.d2i_PublicKey(openssl.EVP_PKEY_EC, &public_key, &at, n) == NULL:
        raise TlsError("", why("no key can be made"))
    openssl.OPENSSL_free(point)
    return 0


cdef int put(dict kept, bytes name, value, Py_ssize_t most) except -1:
    """Keeps it as the newest of at most so many."""
    kept.pop(name, None)
    while len(kept) >= most:
        del kept[next(iter(kept))]
    kept[name] = value
    return 0


cdef int read_address(bytes name, unsigned char *out) noexcept:
    """The number of its octets; 0: it is a host name."""
    cdef ASN1_OCTET_STRING *address = openssl.a2i_IPADDRESS(name)
    cdef int n
    if address == NULL:
        openssl.ERR_clear_error()
        return 0
    n = openssl.ASN1_STRING_length(<openssl.ASN1_STRING *>address)
    memcpy(out, openssl.ASN1_STRING_get0_data(<openssl.ASN1_STRING *>address), n)
    openssl.ASN1_OCTET_STRING_free(address)
    return n


cdef int add_name(X509 *x, bytes name, const unsigned char *address, int n,
                  bint critical) except -1:
    """The subject's alternative name: an address of `n` octets, or the host if that is 0."""
    cdef unsigned char der[MOST_NAME + 8]
    cdef ASN1_OCTET_STRING *value = openssl.ASN1_OCTET_STRING_new()
    cdef X509_EXTENSION *extension
    cdef int length = n if n else <int>len(name)
    cdef int at = 0
    if length > MOST_NAME or value == NULL:
        openssl.ASN1_OCTET_STRING_free(value)
        raise ValueError("a name that is too long")
    der[0] = 0x30                           # GeneralNames (RFC 5280 section 4.2.1.6)
    at = put_length(der, 1, length + 2 + (length > 127))
    der[at] = 0x87 if n else 0x82           # iPAddress, dNSName
    at = put_length(der, at + 1, length)
    if n:
        memcpy(der + at, address, length)
    else:
        memcpy(der + at, <const char *>name, length)
    openssl.ASN1_OCTET_STRING_set(value, der, at + length)
    extension = openssl.X509_EXTENSION_create_by_NID(
        NULL, openssl.NID_subject_alt_name, critical, value)
    openssl.ASN1_OCTET_STRING_free(value)
    if extension == NULL:
        raise MemoryError
    openssl.X509_add_ext(x, extension, -1)
    openssl.X509_EXTENSION_free(extension)
    return 0


cdef int put_length(unsigned char *der, int at, int n) noexcept:
    """Writes a length of DER below 65536; returns the place behind it."""
    if n > 255:
        der[at], der[at + 1], der[at + 2] = 0x82, <unsigned char>(n >> 8), <unsigned char>(n & 255)
        return at + 3
    if n > 127:
        der[at], der[at + 1] = 0x81, <unsigned char>n
        return at + 2
    der[at] = <unsigned char>n
    return at + 1
