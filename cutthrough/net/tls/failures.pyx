# cython: language_level=3, boundscheck=False, wraparound=False
"""Why a call of libssl has failed, by the first error in its queue."""

from cutthrough.net.linux cimport ECONNRESET
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.certificates cimport words_of
from cutthrough.net.tls.context cimport take_refusal
from cutthrough.net.tls.openssl cimport SSL, X509
from cutthrough.net.tls.wire cimport ASKED_AND_SHOWN
from cutthrough.net.transport cimport (
    HANDSHAKE_ALERT, HANDSHAKE_CLOSED, HANDSHAKE_DENIED, HANDSHAKE_INVALID, HANDSHAKE_REJECTED,
    HANDSHAKE_UNSHARED, REFUSES_CERTIFICATE, WANTS_CERTIFICATE)

cdef extern from "<errno.h>" nogil:
    int EPROTO


cdef unsigned long last_error = 0       # of a handshake
cdef long denied = 0                    # of a certificate: X509_V_ERR_…
cdef bint nameless = False              # that has no name of a host
cdef int last_alert = 0                 # of a server, about our certificate


cdef int reason_of_failure(bint ended) noexcept nogil:
    global last_error
    cdef unsigned long error = openssl.ERR_peek_error()
    cdef int reason = openssl.ERR_GET_REASON(error)
    cdef int refusal = take_refusal()
    last_error = error
    if refusal:
        return refusal
    if openssl.ERR_GET_LIB(error) != openssl.ERR_LIB_SSL:
        return HANDSHAKE_INVALID
    if reason >= openssl.SSL_AD_REASON_OFFSET:
        return HANDSHAKE_REJECTED if is_of_certificate(alert_met()) else HANDSHAKE_ALERT
    if reason in (openssl.SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE,
                  openssl.SSL_R_CERTIFICATE_VERIFY_FAILED):
        return HANDSHAKE_DENIED
    if reason in (
            openssl.SSL_R_NO_SHARED_CIPHER, openssl.SSL_R_UNSUPPORTED_PROTOCOL,
            openssl.SSL_R_NO_SUITABLE_KEY_SHARE, openssl.SSL_R_VERSION_TOO_LOW,
            openssl.SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM,
            openssl.SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS,
            openssl.SSL_R_NO_APPLICATION_PROTOCOL):
        return HANDSHAKE_UNSHARED
    return HANDSHAKE_CLOSED if ended else HANDSHAKE_INVALID


def alert_of_failed():
    """The peer's alert by which a handshake failed the last time; < 0: it was none."""
    return openssl.ERR_GET_REASON(last_error) - openssl.SSL_AD_REASON_OFFSET if (
        openssl.ERR_GET_LIB(last_error) == openssl.ERR_LIB_SSL) else -1


def why_failed():
    """Why a handshake failed the last time, in libssl's words; "": it has none."""
    return words_of(last_error)


cdef void note_denied(const SSL *ssl) noexcept nogil:
    global denied, nameless
    denied = openssl.SSL_get_verify_result(ssl)
    nameless = denied == openssl.X509_V_ERR_HOSTNAME_MISMATCH and has_no_names(ssl)


cdef bint has_no_names(const SSL *ssl) noexcept nogil:
    """The peer's certificate has no subjectAltName."""
    cdef void *chain = openssl.SSL_get_peer_cert_chain(ssl)
    cdef void *names
    if chain == NULL or openssl.OPENSSL_sk_num(chain) < 1:
        return False
    names = openssl.X509_get_ext_d2i(
        <X509 *>openssl.OPENSSL_sk_value(chain, 0), openssl.NID_subject_alt_name, NULL, NULL)
    openssl.GENERAL_NAMES_free(names)
    return names == NULL


def why_denied():
    """Why a peer's certificate was not accepted the last time, in libssl's words."""
    why = (<bytes>openssl.X509_verify_cert_error_string(denied)).decode()
    return f"{why}: no subjectAltName" if nameless else why


def alert_of_denied():
    """The alert by which this side would say so (RFC 8446 section 6.2)."""
    if denied in (openssl.X509_V_ERR_CERT_HAS_EXPIRED, openssl.X509_V_ERR_CERT_NOT_YET_VALID):
        return 45                           # certificate_expired
    if denied == openssl.X509_V_ERR_CERT_REVOKED:
        return 44
    if denied in (openssl.X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT,
                  openssl.X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
                  openssl.X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT,
                  openssl.X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
                  openssl.X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE):
        return 48                           # unknown_ca
    return 42                               # bad_certificate: another name, for one


cdef int alert_met() noexcept nogil:
    cdef unsigned long error = openssl.ERR_peek_error()
    return openssl.ERR_GET_REASON(error) - openssl.SSL_AD_REASON_OFFSET if (
        openssl.ERR_GET_LIB(error) == openssl.ERR_LIB_SSL) else -1


cdef void set_alert(int alert) noexcept nogil:
    openssl.ERR_clear_error()
    openssl.ERR_put_error(openssl.ERR_LIB_SSL, 0, openssl.SSL_AD_REASON_OFFSET + alert, b"", 0)


cdef bint is_of_certificate(int alert) noexcept nogil:
    """bad_certificate to certificate_unknown, and unknown_ca (RFC 8446 section 6)."""
    return 42 <= alert <= 46 or alert == 48


cdef int errno_of_alert(const Tls *t, int alert) noexcept nogil:
    """Returns the errno for an alert of the peer. A missing certificate is a handshake_failure in TLS
    1.2, a signature that does not fit a decrypt_error, and a missing certificate certificate_required
    in TLS 1.3 (RFC 8446 section 6)."""
    global last_alert
    if not t.connects:
        return ECONNRESET
    if not t.asked or not (40 <= alert <= 46 or alert in (48, 49, 51, 116)):
        return EPROTO
    last_alert = alert
    return REFUSES_CERTIFICATE if t.asked == ASKED_AND_SHOWN else WANTS_CERTIFICATE


def why_refused():
    """The last alert of a server about our certificate, in libssl's words."""
    return "certificate required" if last_alert == 116 else (
        <bytes>openssl.SSL_alert_desc_string_long(last_alert)).decode()
