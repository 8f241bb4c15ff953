# cython: language_level=3
"""Replies that the proxy makes itself: constants, built once at import (R13).

No part of a request gets into these: every byte comes from the table in outcome.pyx
and from the texts here, so there is nothing to escape and nothing that could leak. A request's
identifier is the proxy's. Texts of others are given to `reply_with_text` and `reply_to_replay`, which
escape them: of filters, of the operator's pages, of a replay that missed.
"""

import json
import re
from http import HTTPStatus
from urllib.parse import quote

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from cutthrough.outcome import NAMES, TABLE
from cutthrough.outcome cimport N_OUTCOMES

# RFC 9110's reason phrases; until Python 3.13 the module http has those of RFC 7231
_PHRASES = {413: "Content Too Large", 414: "URI Too Long"}
# RFC 7617: charset tells the client how to encode the name and the password.
_CHALLENGE = 'Basic realm="cutthrough", charset="UTF-8"'
# For requests with Max-Forwards: 0 (RFC 9110 sections 9.3.7, 10.2.1). A proxy passes any method
# on; these are the common registered ones, without TRACE, which is refused here.
_ALLOW = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT"
# An overload, a drain, or the wait until a connection of the client ends lasts seconds; a
# longer time would keep clients away for nothing. Rates, quotas and back-offs compute theirs.
_SHORT_RETRY_S = 1

# One reply for each outcome and each combination of the flags, at this index.
cdef enum:
    CLOSE = 1
    BODY = 2
    KNOWN_USER = 4
    N_VARIANTS = 8
    MOST_REPLY = 1024
    MOST_WITH_ID = 8192
    MOST_TEXT = 1000        # characters of others: a reply goes out in one send
    MOST_ID = 32            # a worker's number, `-`, and a uint64_t
    RETRY_DIGITS = 10       # of a uint32_t

# By Hint: the label of the outcome, and a text that says what the client can change
_HINTS = {
    <int>TLS_HERE: ("bad_request", "this is TLS; the proxy takes plain HTTP"),
    <int>NO_PORT: ("bad_target", "CONNECT takes host:port"),
    <int>HTTPS_TARGET: ("bad_target", "for https:// use CONNECT host:port"),
    <int>OTHER_SCHEME: ("bad_target", "the only supported scheme is http://"),
    <int>USERINFO: ("bad_target", "a target cannot contain credentials; those for this proxy "
                    "belong in Proxy-Authorization"),
}

# The hints follow the outcomes
cdef const char *texts[N_OUTCOMES + N_HINTS][N_VARIANTS]
cdef size_t lengths[N_OUTCOMES + N_HINTS][N_VARIANTS]
cdef size_t retry_at[N_OUTCOMES][N_VARIANTS]    # offset of Retry-After's digits; 0: none
cdef char with_retry[MOST_REPLY]
cdef char with_id[MOST_WITH_ID]
cdef bytes with_status                          # of a call of gRPC


cdef const char *reply_for(int outcome, bint close, bint body, bint known_user,
                           size_t *length) noexcept nogil:
    cdef int variant = ((CLOSE if close else 0) | (BODY if body else 0)
                        | (KNOWN_USER if known_user else 0))
    if outcome < 0 or outcome >= <int>N_OUTCOMES:
        length[0] = 0
        return NULL
    length[0] = lengths[outcome][variant]
    return texts[outcome][variant]


cdef const char *reply_with_hint(int hint, bint close, bint body, bint known_user,
                                 size_t *length) noexcept nogil:
    cdef int variant = ((CLOSE if close else 0) | (BODY if body else 0)
                        | (KNOWN_USER if known_user else 0))
    length[0] = lengths[N_OUTCOMES + hint][variant]
    return texts[N_OUTCOMES + hint][variant]


cdef const char *reply_with_retry(int outcome, bint close, bint body, bint known_user,
                                  uint32_t retry_s, size_t *length) noexcept nogil:
    cdef int variant = ((CLOSE if close else 0) | (BODY if body else 0)
                        | (KNOWN_USER if known_user else 0))
    cdef const char *text = reply_for(outcome, close, body, known_user, length)
    cdef char digits[RETRY_DIGITS]
    cdef int at = RETRY_DIGITS
    cdef size_t before, after
    if text == NULL or retry_s == 0 or retry_at[outcome][variant] == 0:
        return text
    while retry_s:
        at -= 1
        digits[at] = <char>(48 + retry_s % 10)
        retry_s //= 10
    before = after = retry_at[outcome][variant]
    while 48 <= text[after] <= 57:
        after += 1
    memcpy(with_retry, text, before)
    memcpy(with_retry + before, digits + at, RETRY_DIGITS - at)
    before += RETRY_DIGITS - at
    memcpy(with_retry + before, text + after, length[0] - after)
    length[0] = before + length[0] - after
    return with_retry


cdef bytes reply_with_text(int status, str label, str text, bint close, bint body):
    phrase = PHRASES.get(status, "")
    text = "".join([c if c.isprintable() else "?" for c in text[:MOST_TEXT]])
    content = f"{status} {label}: {text}\n".encode("utf-8", "replace")
    return build_reply(f"{status} {phrase}", label, "text/plain; charset=utf-8", content, close,
                       body)


cdef bytes reply_to_replay(int status, str label, str text, bint close, bint body, bytes head):
    if label == "recording_missed":
        text += "; the mode new_episodes, of a rule cache, records it"
    if READS_JSON.search(head) is None:
        reply = reply_with_text(status, label, text, close, body)
    else:
        reply = build_reply(f"{status} {PHRASES.get(status, '')}", label, "application/json",
                            error_document(label, text), close, body)
    return reply.replace(b"\r\nCache-Control", b"\r\nX-Should-Retry: false\r\nCache-Control", 1)


cdef bint is_head_of_call(bytes head):
    return IS_CALL.search(head) is not None


cdef const char *reply_to_call(bytes label, const char *text, size_t *length) except NULL:
    global with_status
    if text[9:12] in (b"407", b"421"):
        return text
    with_status = call_reply(label, text[:length[0]])
    length[0] = len(with_status)
    return with_status


cdef bytes call_reply(bytes label, bytes reply):
    cdef int status = int(reply[9:12])
    head, _, content = reply.partition(b"\r\n\r\n")
    name = label.decode()
    if b"\r\nContent-Type: text/plain" in head:
        text = content.decode("utf-8", "replace").strip().replace("\n", "; ")
    else:                                   # a page for browsers
        text = f"{status} {name}: {MEANINGS[name]}"
    number = CALL_STATUS_OF_LABEL.get(name) or CALL_STATUS.get(status, UNKNOWN)
    kept = OF_CONTENT.sub(b"", head).partition(b"\r\n")[2]
    return (f"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n"
            f"Grpc-Status: {number}\r\nGrpc-Message: {quote(text, PLAIN)}\r\n").encode() + (
                kept + b"\r\n\r\n")


def error_document(label, text):
    """As OpenAI's, Anthropic's, Stripe's and GitHub's clients read an error."""
    return json.dumps({"type": "error", "message": text, "error": {
        "type": label, "code": label, "message": text, "param": None}}).encode() + b"\n"


def build_reply(status, label, kind, content, close, body):
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(content)}",
             f"Proxy-Status: cutthrough; error={TOKENS[label]}; details=\"{label}\"",
             "Cache-Control: no-store"]
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (content if body else b"")


cdef const char *reply_with_id(const char *text, size_t *length, int worker,
                               uint64_t number) noexcept nogil:
    cdef size_t n = length[0], head = 0, digits = 0, after, content = 0
    cdef char name[MOST_ID]
    cdef size_t n_name = put_decimal(name, <uint64_t>worker)
    cdef char *p = with_id
    cdef bint is_text = True
    if n < 16 or n + 3 * MOST_ID + 64 > MOST_WITH_ID or memcmp(text, b"HTTP/1.1 ", 9) != 0:
        return text
    name[n_name] = b"-"
    n_name += 1 + put_decimal(name + n_name + 1, number)
    while head + 4 <= n and memcmp(text + head, b"\r\n\r\n", 4) != 0:
        if head + 18 < n and memcmp(text + head, b"\r\nContent-Length: ", 18) == 0:
            digits = head + 18
        if head + 16 < n and memcmp(text + head, b"\r\nX-Request-Id: ", 16) == 0:
            return text                     # a page of the operator's has it
        if head + 22 < n and memcmp(text + head, b"\r\nContent-Type: applic", 22) == 0:
            is_text = False                 # JSON
        head += 1
    after = digits
    while after < n and 48 <= text[after] <= 57:
        content = content * 10 + <size_t>(text[after] - 48)
        after += 1
    if digits == 0 or head + 4 > n:
        return text
    memcpy(p, text, digits)
    p += digits
    p += put_decimal(p, content + n_name + 9 if content and is_text else content)
    memcpy(p, text + after, head - after)
    p += head - after
    memcpy(p, b"\r\nX-Request-Id: ", 16)
    memcpy(p + 16, name, n_name)
    p += 16 + n_name
    memcpy(p, text + head, n - head)
    p += n - head
    if is_text and n > head + 4:            # not of HEAD; `request `, and LF
        memcpy(p, b"request ", 8)
        memcpy(p + 8, name, n_name)
        p[8 + n_name] = b"\n"
        p += 9 + n_name
    length[0] = <size_t>(p - with_id)
    return with_id


cdef size_t put_decimal(char *p, uint64_t number) noexcept nogil:
    """Returns the number of its digits."""
    cdef char digits[20]
    cdef size_t n = 0, i
    while True:
        digits[n] = <char>(48 + number % 10)
        n += 1
        number //= 10
        if number == 0:
            break
    for i in range(n):
        p[i] = digits[n - 1 - i]
    return n


PHRASES = {int(status): status.phrase for status in HTTPStatus}
# A field of a request whose client reads an error in JSON
READS_JSON = re.compile(rb"\r\n(?:accept|content-type):[^\r]*json", re.I)
TOKENS = {row.label: row.token for row in TABLE}
MEANINGS = {row.label: row.meaning for row in TABLE}
IS_CALL = re.compile(rb"\r\ncontent-type:[ \t]*application/grpc[+; \t\r]", re.I)
OF_CONTENT = re.compile(rb"\r\nContent-(?:Type|Length):[^\r]*")
# What clients of gRPC make of a status of HTTP (http-grpc-status-mapping.md); of others UNKNOWN
UNKNOWN = 2
CALL_STATUS = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
# FAILED_PRECONDITION: the same call would fail again
CALL_STATUS_OF_LABEL = {"recording_missed": 9, "replay_failed": 9}
# In Grpc-Message: all printable of ASCII but the percent sign
PLAIN = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


def _build(row, close, body, known_user):
    meaning = row.meaning
    if row.status == 407:
        meaning += "; this proxy takes Basic credentials in Proxy-Authorization"
    content = "" if row.status == 200 else f"{row.status} {row.label}: {meaning}\n"
    # RFC 9209: details may reveal internals, so only authenticated users see them.
    error = f"cutthrough; error={row.token}" if row.token else "cutthrough"
    if known_user:
        error += f'; details="{row.label}"'
    lines = [
        f"HTTP/1.1 {row.status} {_PHRASES.get(row.status) or HTTPStatus(row.status).phrase}",
        *(["Content-Type: text/plain; charset=utf-8"] if content else []),
        f"Content-Length: {len(content)}",
        f"Proxy-Status: {error}",
        "Cache-Control: no-store",
    ]
    if row.status == 407:
        lines.append(f"Proxy-Authenticate: {_CHALLENGE}")
    if row.status in (200, 405):
        lines.append(f"Allow: {_ALLOW}")
    if row.status in (429, 503):
        lines.append(f"Retry-After: {_SHORT_RETRY_S}")
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n" + (content if body else "")).encode("ascii")


# The C columns point into these bytes objects, which live as long as the module.
_replies = {}

cdef int number, variant
for number in range(<int>N_OUTCOMES):
    for variant in range(N_VARIANTS):
        texts[number][variant] = NULL
        lengths[number][variant] = 0
        retry_at[number][variant] = 0
        if TABLE[number].status:
            _replies[number, variant] = _build(
                TABLE[number], variant & CLOSE, variant & BODY, variant & KNOWN_USER)
            texts[number][variant] = _replies[number, variant]
            lengths[number][variant] = len(_replies[number, variant])
            assert lengths[number][variant] + RETRY_DIGITS <= MOST_REPLY
            if b"Retry-After: " in _replies[number, variant]:
                retry_at[number][variant] = (
                    _replies[number, variant].index(b"Retry-After: ") + 13)
for number, (_label, _words) in _HINTS.items():
    number += <int>N_OUTCOMES
    for variant in range(N_VARIANTS):
        _replies[number, variant] = _build(
            TABLE[NAMES[_label]]._replace(meaning=_words),
            variant & CLOSE, variant & BODY, variant & KNOWN_USER)
        texts[number][variant] = _replies[number, variant]
        lengths[number][variant] = len(_replies[number, variant])
