# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Towards an origin, TLS offers what a client has offered to us: see wire.offers.

Ciphers, groups and signatures in the client's order, its highest version, and whether it has
session_ticket, encrypt_then_mac and status_request. The rest is libssl's: the order of extensions,
the suites of TLS 1.3 first, a share of the first group, or two (`SHARED`), the suite 0x00ff in
place of renegotiation_info, no GREASE, and no extension that it does not know. Never offered, even
if a client offers them to us: suites without authentication, without encryption or with a key
below 128 bits, SHA-1 and MD5 in signatures, versions before 1.2, and groups of finite fields above
4096 bits, because an origin could choose one: a handshake with ffdhe8192 takes 110 ms.
"""

from libc.stdint cimport uint8_t
from cutthrough.net.linux cimport ENOTCONN
from cutthrough.net.sysio cimport Socket
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.openssl cimport SSL, SSL_CIPHER
from cutthrough.net.tls.wire cimport Tls, tls_of

cdef enum:
    # Flags of wire.offers
    OFFERS_STATUS = 1
    OFFERS_ENCRYPT_THEN_MAC = 2
    OFFERS_TICKET = 4
    LEAST_BITS = 128
    MOST_KEPT = 64              # offers whose names are at hand: one a client software

# IANA's numbers -> libssl's names
GROUPS = {
    0x11ec: "X25519MLKEM768", 0x001d: "X25519", 0x0017: "P-256", 0x0018: "P-384",
    0x0019: "P-521", 0x001e: "X448", 0x0100: "ffdhe2048", 0x0101: "ffdhe3072",
    0x0102: "ffdhe4096",
}
# If the first is preferred, a share of both goes out, as from browsers: see context.GROUPS
SHARED = (b"X25519MLKEM768", b"X25519")
SIGNATURES = {
    0x0403: "ecdsa_secp256r1_sha256", 0x0503: "ecdsa_secp384r1_sha384",
    0x0603: "ecdsa_secp521r1_sha512", 0x0804: "rsa_pss_rsae_sha256",
    0x0805: "rsa_pss_rsae_sha384", 0x0806: "rsa_pss_rsae_sha512", 0x0807: "ed25519",
    0x0808: "ed448", 0x0809: "rsa_pss_pss_sha256", 0x080a: "rsa_pss_pss_sha384",
    0x080b: "rsa_pss_pss_sha512", 0x0401: "rsa_pkcs1_sha256", 0x0501: "rsa_pkcs1_sha384",
    0x0601: "rsa_pkcs1_sha512",
}
AUTHENTICATED = {openssl.NID_auth_rsa, openssl.NID_auth_ecdsa, openssl.NID_auth_any}
EXCHANGED = {openssl.NID_kx_ecdhe, openssl.NID_kx_dhe, openssl.NID_kx_rsa, openssl.NID_kx_any}

cdef dict names_by_offer = {}   # offer -> Names


cdef class Names:
    """The names of an offer, as libssl reads them. If a field is empty, libssl's own choice stays."""
    cdef bytes older, suites, groups, signatures
    cdef int flags
    cdef int version


def offer_as(int fd, bytes offer):
    """Sets the offer of a socket's TLS, before its handshake. Raises OSError if the socket has no TLS.
    """
    cdef Socket s
    cdef Tls *t
    cdef Names names
    s.fd = fd
    t = tls_of(&s)
    if t == NULL or t.ssl == NULL:
        raise OSError(ENOTCONN, "no TLS")
    names = names_by_offer.get(offer)
    if names is None:
        names = names_of(t.ssl, offer)
        if len(names_by_offer) >= MOST_KEPT:
            del names_by_offer[next(iter(names_by_offer))]
        names_by_offer[offer] = names
    apply(t.ssl, names)
    openssl.SSL_set_session(t.ssl, NULL)        # made with ciphers that may not be among these
    t.offered = False


def omit_name(int fd):
    """Omits the server name from a socket's TLS, before its handshake. The certificate still has to
    have the name. Raises OSError if the socket has no TLS."""
    cdef Socket s
    cdef Tls *t
    s.fd = fd
    t = tls_of(&s)
    if t == NULL or t.ssl == NULL:
        raise OSError(ENOTCONN, "no TLS")
    openssl.SSL_set_tlsext_host_name(t.ssl, NULL)
    openssl.SSL_set_session(t.ssl, NULL)        # of a handshake with the name
    t.offered = False


cdef int apply(SSL *ssl, Names names) except -1:
    """If libssl refuses a part, that stays as it was."""
    openssl.libssl_bound_dh(ssl)
    if names.older:
        openssl.SSL_set_cipher_list(ssl, names.older)
    if names.suites:
        openssl.SSL_set_ciphersuites(ssl, names.suites)
    if names.groups:
        openssl.SSL_set1_groups_list(ssl, names.groups)
    if names.signatures:
        openssl.SSL_set1_sigalgs_list(ssl, names.signatures)
    if names.version == openssl.TLS1_2_VERSION:
        openssl.SSL_set_max_proto_version(ssl, openssl.TLS1_2_VERSION)
    if not names.flags & OFFERS_TICKET:
        openssl.SSL_set_options(ssl, openssl.SSL_OP_NO_TICKET)
    if not names.flags & OFFERS_ENCRYPT_THEN_MAC:
        openssl.SSL_set_options(ssl, openssl.SSL_OP_NO_ENCRYPT_THEN_MAC)
    if names.flags & OFFERS_STATUS:
        openssl.SSL_set_tlsext_status_type(ssl, openssl.TLSEXT_STATUSTYPE_ocsp)
    openssl.ERR_clear_error()
    return 0


cdef Names names_of(SSL *ssl, bytes offer):
    cdef Names names = Names()
    older, suites = [], []
    version, flags, ciphers, groups, signatures = split(offer)
    names.version, names.flags = version, flags
    for number in ciphers:
        name = name_of_cipher(ssl, number)
        if name is not None:
            (suites if name.startswith(b"TLS_") else older).append(name)
    names.older, names.suites = b":".join(older), b":".join(suites)
    # Not all versions of libssl know all of them, and one that is unknown spoils the list
    known = [
        name for name in (GROUPS.get(number, "").encode() for number in groups)
        if name and openssl.SSL_set1_groups_list(ssl, name)]
    if known[:1] == [SHARED[0]] and openssl.SSL_set1_groups_list(ssl, b"*" + SHARED[0]):
        known = [b"*" + name if name in SHARED else name for name in known]
    names.groups = b":".join(known)
    names.signatures = b":".join([
        name for name in (SIGNATURES.get(number, "").encode() for number in signatures)
        if name and openssl.SSL_set1_sigalgs_list(ssl, name)])
    openssl.ERR_clear_error()
    return names


cdef bytes name_of_cipher(SSL *ssl, int number):
    cdef uint8_t[2] wire
    cdef const SSL_CIPHER *cipher
    wire[0], wire[1] = <uint8_t>(number >> 8), <uint8_t>(number & 0xff)
    cipher = openssl.SSL_CIPHER_find(ssl, wire)
    if cipher == NULL or openssl.SSL_CIPHER_get_bits(cipher, NULL) < LEAST_BITS or (
            openssl.SSL_CIPHER_get_auth_nid(cipher) not in AUTHENTICATED
            or openssl.SSL_CIPHER_get_kx_nid(cipher) not in EXCHANGED):
        return None
    return openssl.SSL_CIPHER_get_name(cipher)


def split(bytes offer):
    """Returns version, flags, ciphers, groups and signatures, as numbers."""
    lists, at = [], 3
    for _ in range(3):
        end = at + 1 + 2 * offer[at]
        lists.append([offer[i] << 8 | offer[i + 1] for i in range(at + 1, end, 2)])
        at = end
    return (offer[0] << 8 | offer[1], offer[2], *lists)
