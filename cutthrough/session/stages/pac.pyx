# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The answer to a browser that asks for its auto-configuration.

`generation.pac` makes the file, but for the proxy's own address: that is the Host of the request,
under which the browser has reached it, also through a load balancer. The canonical host has only
characters of names and addresses, so that nothing can leave its JavaScript string. If the file names
the proxies of a fleet, their order is this client's.

Everybody gets the file, because no browser sends credentials for it. The connection ends with the
answer: it is the browser's last request in origin form here.
"""

from libc.string cimport memchr, memcmp, memcpy
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport COPY_BYTES, scratch
from cutthrough.net.sysio cimport try_send
from cutthrough.outcome cimport CLIENT_CLOSED, OK
from cutthrough.session.model.client cimport Client
from cutthrough.wire.authority cimport MAX_HOST, Target, build_authority, put_number
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.names cimport M_GET, M_HEAD

cdef enum:
    ROOM = 512                  # of the head, and of host and port

cdef const char *FILES[2]
FILES[0] = b"/proxy.pac"
FILES[1] = b"/wpad.dat"
cdef size_t[2] lengths = [10, 9]
# draft-ietf-wrec-wpad-01 section 4.5 has the media type
cdef const char *HEAD_BEFORE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ns-proxy-autoconfig\r\n"
    b"Cache-Control: private, max-age=300\r\nConnection: close\r\nContent-Length: ")
assert len(HEAD_BEFORE) + 16 + MAX_HOST + 9 <= ROOM


cdef bint asks_for_pac(Client c, const Head *head, const char *data,
                       const Target *target) noexcept:
    cdef const char *path = data + target.path
    cdef const char *query = <const char *>memchr(path, c'?', target.path_len)
    cdef size_t n = target.path_len if query == NULL else query - path
    cdef int i
    if target.host_len == 0 or (head.method != M_GET and head.method != M_HEAD):
        return False
    for i in range(2):
        if n == lengths[i] and memcmp(path, FILES[i], n) == 0:
            return c.context.pacs[c.pac - 1] is not None
    return False


cdef int send_pac(Client c, const Target *target) except -1:
    cdef bytes before, behind, ordered
    cdef char authority[MAX_HOST + 9]
    cdef char client[ADDRESS_TEXT]
    cdef const char *ways = authority
    cdef size_t n
    cdef char *begin
    cdef char *p
    before, behind, order = c.context.pacs[c.pac - 1]
    if order is None:
        n = build_authority(authority, target, 0)
    else:
        ordered = order(client[:print_address(&c.address, client)])
        ways, n = ordered, len(ordered)
    if <size_t>len(before) + n + len(behind) + ROOM > COPY_BYTES:
        raise ValueError("a file longer than generation.pac makes any")
    begin = scratch()
    p = put(begin, HEAD_BEFORE, len(HEAD_BEFORE))
    p += put_number(p, <unsigned int>(len(before) + n + len(behind)))
    p = put(p, b"\r\n\r\n", 4)
    if c.request.method != M_HEAD:
        p = put(put(put(p, before, len(before)), ways, n), behind, len(behind))
    c.request.status = 200
    if try_send(&c.sock, begin, p - begin) != p - begin:
        return c.abort(CLIENT_CLOSED, False)
    c.relay.down.moved += p - begin
    c.log_end(OK)
    c._clear_request()
    return c.linger(False)


cdef inline char *put(char *p, const char *data, size_t n) noexcept:
    memcpy(p, data, n)
    return p + n
