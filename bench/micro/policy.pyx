# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loop of bench/micro/policy.py."""

from socket import inet_aton

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec
from cutthrough.policy.acl cimport Acl, Question, Verdict
from cutthrough.wire.names cimport M_CONNECT, M_GET
from cutthrough.wire.paths cimport Path, set_path


def clock(Acl acl, list hosts, list addresses=None, bytes path=None):
    """Returns nanoseconds of CPU time for one decision about port 443, on average over these
    hosts (canonical, in bytes), each with its address (IPv4 text) if `addresses` are given. With
    `path` it is a GET of this path, else a CONNECT."""
    cdef Path asked
    cdef Question q
    cdef Verdict v
    cdef char host[256]
    cdef uint8_t address[16]
    cdef timespec began, ended
    cdef bytes bits = acl.subjects_of("")
    cdef list to_packed = [bytes(10) + b"\xff\xff" + inet_aton(text) for text in addresses or ()]
    cdef size_t n = len(hosts), i
    cdef bint known = bool(to_packed)
    cdef const char **texts = <const char **>malloc(2 * n * sizeof(char *) + 1)
    cdef size_t *lengths = <size_t *>malloc(n * sizeof(size_t) + 1)
    if texts == NULL or lengths == NULL:
        free(texts)
        free(lengths)
        raise MemoryError
    for i in range(n):
        texts[i] = <bytes>hosts[i]
        lengths[i] = min(<size_t>255, <size_t>len(hosts[i]))
        if known:
            texts[n + i] = <bytes>to_packed[i]
    memset(&q, 0, sizeof(Question))
    q.subjects = <const uint8_t *>bits
    q.host = host
    q.is_name = True
    q.port = 443
    q.method = M_CONNECT
    if path is not None:
        q.method = M_GET
        q.path = &asked
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began)
    for i in range(n):
        # Copied, so that it is in the cache, as a session's host is.
        memcpy(host, texts[i], lengths[i])
        q.host_len = lengths[i]
        if known:
            memcpy(address, texts[n + i], 16)
            q.address = address
        if q.path != NULL:
            set_path(q.path, path, len(path))
        acl.judge(&q, &v)
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended)
    free(texts)
    free(lengths)
    return ((ended.tv_sec - began.tv_sec) * 1e9
            + (ended.tv_nsec - began.tv_nsec)) / max(<size_t>1, n)
