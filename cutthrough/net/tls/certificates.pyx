# cython: language_level=3, boundscheck=False, wraparound=False
"""Certificates and keys: read from PEM, and the names in them."""

from typing import NamedTuple

from libc.stdint cimport uint8_t
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.openssl cimport BIO, GENERAL_NAME, SSL, X509

cdef extern from "<time.h>" nogil:
    struct tm:
        int tm_sec
    long timegm(tm *when)

cdef extern from "libssl.h" nogil:
    int ASN1_TIME_to_tm(const openssl.ASN1_TIME *time, tm *out)

cdef enum:
    MOST_NAME = 255         # bytes of a name
    # Of a peer. libssl reads the key of each before it verifies any: most take 50 us, a compressed
    # point of P-224 1.4 ms with its curve's parameters, and 100 KiB have room for 800. Usual chains
    # have two to five, and GnuTLS verifies 16
    MOST_SENT = 16

# Of NID_rsaEncryption, NID_X9_62_id_ecPublicKey, NID_ED25519
KEYS = {6: "RSA", 408: "ECDSA", 1087: "Ed25519"}


class TlsError(ValueError):
    """A certificate, key or list that cannot be used: the file's name, and the reason."""

    def __init__(self, name, reason):
        super().__init__(f"{name}: {reason}" if name else reason)
        self.name, self.reason = name, reason


class Pair(NamedTuple):
    """A certificate with its chain, its key, and perhaps an OCSP response: what the files
    hold. `name` is for messages."""

    certificate: bytes          # PEM, the server's first
    key: bytes                  # PEM
    ocsp: bytes = b""           # DER
    name: str = ""


class Certificate(NamedTuple):
    """The facts of a certificate."""

    name: str
    hosts: tuple[str, ...]
    key: str
    not_before: int             # seconds of the epoch
    not_after: int


cdef class Loaded:

    def __dealloc__(self):
        openssl.X509_free(self.leaf)
        openssl.EVP_PKEY_free(self.key)


cdef int no_password(char *out, int n, int writes, void *arg) noexcept nogil:
    return -1                               # nobody is there to type one


cdef BIO *open_bytes(bytes data) except NULL:
    cdef BIO *source = openssl.BIO_new_mem_buf(<const char *>data, <int>len(data))
    if source == NULL:
        raise MemoryError
    return source


cdef list read_certificates(bytes data, name):
    cdef BIO *source = open_bytes(data)
    cdef Loaded certificate
    certificates = []
    try:
        while True:
            certificate = Loaded()
            certificate.leaf = openssl.PEM_read_bio_X509(source, NULL, no_password, NULL)
            if certificate.leaf == NULL:
                break
            certificates.append(certificate)
    finally:
        openssl.BIO_free(source)
    if not certificates:
        raise TlsError(name, why("holds no certificate in PEM"))
    openssl.ERR_clear_error()
    return certificates


cdef Loaded load(pair):
    """Raises TlsError if certificate and key cannot be read, or do not belong together."""
    cdef list chain = read_certificates(pair.certificate, pair.name)
    cdef Loaded leaf = chain[0]
    cdef BIO *source = open_bytes(pair.key)
    try:
        leaf.key = openssl.PEM_read_bio_PrivateKey(source, NULL, no_password, NULL)
    finally:
        openssl.BIO_free(source)
    if leaf.key == NULL:
        raise TlsError(pair.name, why("the key cannot be read, or is encrypted"))
    if not openssl.X509_check_private_key(leaf.leaf, leaf.key):
        raise TlsError(pair.name, why("the key does not belong to the certificate"))
    leaf.chain = chain[1:]
    leaf.pair = pair
    leaf.about = about(leaf.leaf, pair.name)
    return leaf


def version():
    """The name and the version of libcrypto, as "OpenSSL 3.0.19 27 Jan 2026"."""
    return (<bytes>openssl.OpenSSL_version(openssl.OPENSSL_VERSION)).decode()


def describe(bytes data, str name):
    """Returns the facts of each certificate of a PEM, at least one. Raises TlsError, which has this
    name."""
    return [about((<Loaded>certificate).leaf, name) for certificate in read_certificates(data, name)]


cdef object about(X509 *certificate, name):
    cdef openssl.EVP_PKEY *key = openssl.X509_get0_pubkey(certificate)
    cdef int kind = 0 if key == NULL else openssl.EVP_PKEY_get_base_id(key)
    return Certificate(
        name, tuple(names_in(certificate, (openssl.GEN_DNS,)) or [
            name.lower() for name in [common_name(certificate)] if name]),
        KEYS.get(kind, str(kind)), seconds_of(openssl.X509_get0_notBefore(certificate)),
        seconds_of(openssl.X509_get0_notAfter(certificate)))


cdef long seconds_of(const openssl.ASN1_TIME *time) except? -1:
    cdef tm parts
    return timegm(&parts) if ASN1_TIME_to_tm(time, &parts) else 0


cdef list names_in(X509 *certificate, kinds):
    """The subject's alternative names of these kinds, in order; DNS names in lower case."""
    cdef void *names = openssl.X509_get_ext_d2i(
        certificate, openssl.NID_subject_alt_name, NULL, NULL)
    cdef void *value
    cdef int i, kind
    texts = []
    if names == NULL:
        openssl.ERR_clear_error()
        return texts
    for i in range(openssl.OPENSSL_sk_num(names)):
        value = openssl.GENERAL_NAME_get0_value(
            <GENERAL_NAME *>openssl.OPENSSL_sk_value(names, i), &kind)
        if kind in kinds:
            text = (<const char *>openssl.ASN1_STRING_get0_data(<openssl.ASN1_STRING *>value))[
                :openssl.ASN1_STRING_length(<openssl.ASN1_STRING *>value)]
            name = readable(text)
            if name:
                texts.append(name.lower() if kind == openssl.GEN_DNS else name)
    openssl.GENERAL_NAMES_free(names)
    return texts


cdef str common_name(X509 *certificate):
    cdef char out[MOST_NAME + 1]
    cdef int n = openssl.X509_NAME_get_text_by_NID(
        openssl.X509_get_subject_name(certificate), openssl.NID_commonName, out, sizeof(out))
    return readable(out[:n]) if n > 0 else ""


cdef str readable(bytes text):
    """The text, or "" if it is no name: a NUL in it, for one, has fooled readers that stop
    there (CVE-2009-2408)."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        return ""
    return name if name.isprintable() and len(text) <= MOST_NAME else ""


cdef str why(str text):
    """The text, and libcrypto's reason if there is one; empties its queue."""
    reason = words_of(openssl.ERR_peek_error())
    openssl.ERR_clear_error()
    return f"{text} ({reason})" if reason else text


cdef str words_of(unsigned long error):
    """libcrypto's reason; "": there is none. AWS-LC has SUCH_WORDS."""
    cdef const char *reason = openssl.ERR_reason_error_string(error) if error else NULL
    text = (<bytes>reason).decode() if reason != NULL else ""
    return text.lower().replace("_", " ") if text.isupper() else text


cdef bytes name_in(X509 *certificate):
    """A SPIFFE URI, else the common name, else the first DNS name or address of mail. None if
    the certificate has none, or has expired: a session may be resumed after that."""
    if openssl.X509_cmp_current_time(openssl.X509_get0_notAfter(certificate)) <= 0:
        return None
    name = next((uri for uri in names_in(certificate, (openssl.GEN_URI,))
                 if uri.startswith("spiffe://")), "") or common_name(certificate)
    if not name:
        name = next(iter(names_in(certificate, (openssl.GEN_DNS, openssl.GEN_EMAIL))), "")
    return name.encode() if name else None


cdef void refuse_many(SSL *ssl, const void *message, size_t n) noexcept nogil:
    """libssl has no bound in certificates, and its callbacks for a message return nothing: so the
    length of the list is made wrong, in libssl's buffer."""
    cdef uint8_t *data = <uint8_t *>message
    cdef bint is_13 = openssl.SSL_version(ssl) == openssl.TLS1_3_VERSION
    cdef size_t begin = 4, at           # of the list, behind the header of the message
    cdef int sent = 0
    if is_13 and n > begin:
        begin += 1 + data[begin]        # RFC 8446 section 4.4.2: certificate_request_context
    at = begin + 3
    while at + 3 <= n:
        at += 3 + (data[at] << 16 | data[at + 1] << 8 | data[at + 2])
        if is_13 and at + 2 <= n:
            at += 2 + (data[at] << 8 | data[at + 1])        # extensions
        sent += 1
        if sent > MOST_SENT:
            openssl.ERR_put_error(
                openssl.ERR_LIB_SSL, 0, openssl.SSL_R_EXCESSIVE_MESSAGE_SIZE, b"", 0)
            data[begin] = 0xff
            return
