"""The fields of a line by a format: a code, and its value for one ending."""

from libc.stdint cimport uint64_t
from libc.time cimport time_t
from cutthrough.log.text cimport Quote
from cutthrough.net cimport linux
from cutthrough.session.model.client cimport Client

cdef enum:
    MOST_TIME = 64          # config.log_format.MOST_TIME

# By fields.NUMBERS.
cdef enum:
    S_TEXT = 0
    S_SN, S_ERR_CODE, S_ERR_DETAIL
    S_CLIENT, S_CLIENT_PORT, S_LOCAL, S_LOCAL_PORT, S_PEER, S_PEER_NAME, S_PEER_PORT
    S_SOURCE, S_SOURCE_PORT
    S_SECONDS, S_MS, S_LOCALTIME, S_GMT, S_TOTAL, S_BEGAN, S_DNS, S_PEER_TIME
    S_USER, S_LOGIN, S_IDENT, S_METHOD, S_URL, S_PATH, S_SCHEME, S_HOST, S_PORT, S_VERSION
    S_FIELD, S_STATUS, S_TYPE, S_BYTES, S_BYTES_UP, S_BYTES_DOWN, S_TAG, S_HIERARCHY
    S_ID, S_REASON, S_WORKER, S_RELAY, S_RULE, S_HOOK, S_KIND, S_TRIED
    S_PROXIED_BY, S_TLV
    S_OWN_TLS, S_OWN_CIPHER, S_OWN_SNI, S_OWN_ALPN, S_OWN_RESUMED, S_OWN_CERTIFICATE
    S_OWN_JA4, S_OWN_JA3, S_OWN_JA4_R, S_OWN_JA4_O, S_OWN_JA4_RO, S_OWN_HTTP2
    S_OWN_TCP
    S_PROTOCOL, S_SNI, S_ALPN, S_TLS, S_JA4, S_JA3, S_ECH
    S_INTERCEPTED, S_PINNED
    S_REPORT, S_UPGRADE, S_CHANGED, S_BREAKPOINT, S_PARENT, S_PARENT_STATUS, S_SOURCE_NAME
    S_CLIENT_HTTP, S_ORIGIN_HTTP, S_PEER_TLS, S_PEER_CIPHER, S_HELD_MS, S_CLIENT_TLS_MS
    S_ORIGIN_TLS_MS
    S_HEAD_MS, S_AUTH_MS, S_HOOK_MS, S_DNS_MS, S_CONNECT_MS, S_FIRST_MS, S_TOTAL_MS
    S_TOTAL_S, S_START, S_TIMERS, S_TERMINATION, S_COLOR, S_UNCOLOR
    S_CLIENT_RTT, S_CLIENT_LOST, S_ORIGIN_RTT, S_ORIGIN_LOST
    N_STEPS

cdef struct Step:
    int code
    Quote quote
    bint is_shell, left, zero
    size_t width, most
    size_t behind           # bytes that later steps may need
    const char *text
    size_t text_len
    int field               # index into the kept fields, or a Tlv
    time_t made_s           # the second that `made` shows; -1: none yet
    char made[MOST_TIME]    # a formatted time
    size_t made_len

# What all fields of a line share.
cdef struct Ending:
    int outcome
    int worker
    uint64_t sequence       # number of the line
    linux.timespec now

# Writes the step's value at `p`, up to `last` if it may be long, and returns its end: `p` if there
# is none. `noted`: fields of a head that is not kept any more; None: it is, or has none.
cdef char *put_field(char *p, Step *step, Client c, const Ending *ending, tuple noted,
                     const char *last) except NULL
