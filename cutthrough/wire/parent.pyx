# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The dialogue with a parent, as steps without I/O: a message, and the reader of its answer.

    CONNECT     SAY_CONNECT ─> nothing
    SOCKS5      SAY_GREETING ─> SAY_SOCKS5 ─> nothing
                            └─> SAY_LOGIN ──^
    SOCKS4      SAY_SOCKS4 ─> nothing

The caller owns the socket, the bytes and the deadline. A step keeps nothing between two calls,
and an answer is used whole: the octets behind it belong to the next step, or to the tunnel.
"""

from cutthrough.outcome cimport BAD_PARENT, PARENT_AUTH, PARENT_REFUSED
from cutthrough.wire.connect cimport build_connect, read_connect_answer
from cutthrough.wire.socks_client cimport (
    MOST_SOCKS_MESSAGE, SOCKS_LOGIN, SOCKS_NO_LOGIN, SOCKS_NO_METHOD, build_socks4_request,
    build_socks5_greeting, build_socks5_login, build_socks5_request, read_socks4_reply,
    read_socks5_login, read_socks5_method, read_socks5_reply)

cdef enum:
    # RFC 1928 section 6: not allowed by ruleset
    NOT_ALLOWED = 2
    # SOCKS4: identd cannot be reached, or names another user
    NO_IDENT = 92
    OTHER_IDENT = 93


cdef Step first_step(int protocol) noexcept nogil:
    if protocol == BY_SOCKS5:
        return SAY_GREETING
    return SAY_SOCKS4 if protocol == BY_SOCKS4 else SAY_CONNECT


cdef size_t say(Step step, const Errand *e, char *out, size_t cap) noexcept nogil:
    if step == SAY_CONNECT:
        return build_connect(out, cap, e.target, e.credentials, e.via)
    if cap < MOST_SOCKS_MESSAGE:
        return 0
    if step == SAY_GREETING:
        return build_socks5_greeting(out, e.has_login)
    if step == SAY_LOGIN:
        return build_socks5_login(out, &e.login)
    if step == SAY_SOCKS5:
        return build_socks5_request(out, e.target)
    return build_socks4_request(out, e.target, e.login.name, e.login.name_len)


cdef int hear(Step *step, const Errand *e, char *data, size_t n, int *code) noexcept nogil:
    cdef int length
    code[0] = 0
    if step[0] == SAY_CONNECT:
        length = read_connect_answer(data, n, code)
        step[0] = SAY_CONNECT if length <= 0 else SAY_NOTHING
        if length > 0 and code[0] >= 300:
            # tinyproxy answers 407 if there are no credentials, and 401 if they are wrong
            return -PARENT_AUTH if code[0] in (401, 407) else -PARENT_REFUSED
    elif step[0] == SAY_GREETING:
        length = read_socks5_method(data, n, code)
        if length > 0:
            if code[0] == SOCKS_NO_METHOD:
                return -PARENT_AUTH
            if code[0] != SOCKS_NO_LOGIN and not (code[0] == SOCKS_LOGIN and e.has_login):
                return -BAD_PARENT      # a method that was not offered
            step[0] = SAY_SOCKS5 if code[0] == SOCKS_NO_LOGIN else SAY_LOGIN
    elif step[0] == SAY_LOGIN:
        length = read_socks5_login(data, n, code)
        if length > 0 and code[0]:
            return -PARENT_AUTH
        step[0] = SAY_LOGIN if length <= 0 else SAY_SOCKS5
    elif step[0] == SAY_SOCKS5:
        length = read_socks5_reply(data, n, code)
        if length > 0 and code[0]:
            return -PARENT_REFUSED
        step[0] = SAY_SOCKS5 if length <= 0 else SAY_NOTHING
    else:
        length = read_socks4_reply(data, n, code)
        if length > 0 and code[0]:
            return -PARENT_AUTH if code[0] == NO_IDENT or code[0] == OTHER_IDENT else (
                -PARENT_REFUSED)
        step[0] = SAY_SOCKS4 if length <= 0 else SAY_NOTHING
    return -BAD_PARENT if length < 0 else length


cdef bint is_decision(int protocol, int code) noexcept nogil:
    # 408 and 429 are the parent's state. 508 is a decision, because the request would go round in a
    # circle (R20)
    if protocol == BY_CONNECT:
        return (400 <= code < 500 and code != 408 and code != 429) or code == 508
    return protocol == BY_SOCKS5 and code == NOT_ALLOWED
