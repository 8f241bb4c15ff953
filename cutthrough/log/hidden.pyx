# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""URLs of requests in lines of the log, without the values of configured keys (R81), and of
configured paths in JSON (R79): GET /graphql?variables={"password": …}.

The keys and their spellings are those of exchange/redaction/spellings.py: any case, percent-encoding
at any depth, brackets behind and around a key. It is C here, because each line has a URL; without
keys, and without a URL's user information, a line costs one look for "@" more.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from cutthrough.exchange.user_information cimport may_have_user, user_at
from cutthrough.log.text cimport Q_URL, Quote, put_escaped, put_text

cdef enum:
    MOST_BRACKETS = 64
    MARKED = 14                         # octets of a stand-in and a mark

# In lower case, UTF-8; a reload replaces the list
cdef list KEYS = []
# Each removes values in JSON, of octets
cdef list DOCUMENTS = []
# Both, of each worker of this process: a program may have several
cdef dict OWNERS = {}


def hide_keys(names, documents=None, owner=0):
    """From now on the values of these keys (lower case) are in no line, nor what
    documents(octets) removes, which returns the octets to keep. Those of other owners
    stay hidden."""
    OWNERS[owner] = {name.encode() for name in names}, documents
    combine()


def forget_keys(owner):
    """Forgets the keys of a worker that ends."""
    OWNERS.pop(owner, None)
    combine()


cdef combine():
    global KEYS, DOCUMENTS
    KEYS = sorted({key for keys, _ in OWNERS.values() for key in keys})
    DOCUMENTS = [documents for _, documents in OWNERS.values() if documents is not None]


def hidden(bytes text not None):
    """The text as a line has it."""
    text = without_members(text, len(text)) or text      # it may have become longer
    cdef bytearray buffer = bytearray(len(text) * 12 + 64)
    cdef char *begin = buffer
    cdef char *end = put_hidden(begin, text, len(text), Q_URL, begin + len(buffer) - 16)
    return bytes(buffer[:end - begin])


cdef char *put_hidden(char *p, const char *data, size_t n, Quote quote, const char *last
                      ) except NULL:
    cdef const char *end
    cdef const char *at
    cdef const char *value
    cdef const char *value_end = NULL
    cdef bytes line = None
    if DOCUMENTS and may_have_members(data, n):
        # What is beyond the line's room need not be searched
        line = without_members(data, min(n, <size_t>(last - p) + 1))
        if line is not None:
            data, n = line, len(line)
    at, end = data, data + n
    if not KEYS and not may_have_user(data, n):
        return put_escaped(p, data, n, quote, last, True)
    while True:
        value = next_secret(data, at, end, &value_end)
        if value == NULL:
            return put_escaped(p, at, end - at, quote, last, True)
        if last - p < MARKED:
            return put_text(p, b"\xe2\x80\xa6")
        p = put_escaped(p, at, value - at, quote, last - MARKED, False)
        p = put_text(p, b"[redacted]")
        at = value_end


cdef inline bint may_have_members(const char *data, size_t n) noexcept:
    """Has it a quotation mark, in some spelling?"""
    return (memchr(data, 34, n) != NULL or memchr(data, 37, n) != NULL
            or memchr(data, 39, n) != NULL or memchr(data, 92, n) != NULL)


cdef bytes without_members(const char *data, size_t n):
    """None: nothing is removed."""
    cdef bytes text
    if not DOCUMENTS or not may_have_members(data, n):
        return None
    made = text = data[:n]
    try:
        for documents in DOCUMENTS:
            made = documents(made)
    except Exception:                   # no memory: nothing of it may be in the line
        return b"[redacted]"
    return None if made == text else made


cdef const char *next_secret(const char *data, const char *at, const char *end,
                             const char **value_end) except? NULL:
    """Returns the start of the next secret; NULL if there is none."""
    cdef const char *behind
    cdef bytes key
    cdef int level
    while at < end:
        if at[0] == 47 or at[0] == 92 or at[0] == 37:      # / \ %
            behind = user_at(data, at, end, value_end)
            # "***": wire/refused has hidden it
            if behind != NULL and not (end - behind > 3 and memcmp(behind, b"***@", 4) == 0):
                return behind
        if begins(data, at):
            for key in KEYS:
                behind = key_end(at, end, key, &level)
                if behind != NULL and behind < end:
                    value_end[0] = value_behind(behind, end, level)
                    if value_end[0] > behind:
                        return behind
        at += 1
    return NULL


cdef inline bint is_key_character(uint8_t c) noexcept:
    return (97 <= c <= 122 or 65 <= c <= 90 or 48 <= c <= 57 or c == 95 or c == 46 or c == 126
            or c == 36 or c == 45 or c == 37)


cdef inline int digit(uint8_t c) noexcept:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


cdef inline bint ends_escape(const char *at) noexcept:
    return digit((at - 2)[0]) >= 0 and digit((at - 1)[0]) >= 0


cdef inline bint begins(const char *data, const char *at) noexcept:
    """May a key begin here: at the start, behind a character outside keys, or behind an escape?"""
    if at == data or not is_key_character((at - 1)[0]):
        return True
    if at - data >= 3 and (at - 3)[0] == 37:
        return ends_escape(at)
    return at - data >= 5 and (at - 5)[0] == 37 and (at - 4)[0] == 50 and (
        at - 3)[0] == 53 and ends_escape(at)


cdef const char *behind_character(const char *at, const char *end, uint8_t c, int *level
                                  ) noexcept:
    """Returns the place behind this character (lower case), in any spelling; NULL if there is another
    character. `level`: how often its escape is escaped; -1: it is no escape."""
    cdef uint8_t first
    level[0] = -1
    if at >= end:
        return NULL
    first = at[0]
    if first == c or (65 <= first <= 90 and first + 32 == c) or (c == 32 and first == 43):
        return at + 1
    if first != 37:
        return NULL
    at += 1
    level[0] = 0
    while end - at >= 4 and at[0] == 50 and at[1] == 53:
        level[0] += 1
        at += 2
    if end - at < 2 or digit(at[0]) < 0 or digit(at[1]) < 0:
        return NULL
    first = 16 * digit(at[0]) + digit(at[1])
    return at + 2 if first == c or (65 <= first <= 90 and first + 32 == c) else NULL


cdef const char *key_end(const char *at, const char *end, bytes key, int *level) except? NULL:
    """Returns the place behind the equals sign, if this key is here; else NULL."""
    cdef const char *text = key
    cdef const char *behind
    cdef Py_ssize_t i, _i, n = len(key)
    cdef int ignored
    for i in range(n):
        at = behind_character(at, end, text[i], &ignored)
        if at == NULL:
            return NULL
    behind = behind_character(at, end, 93, &ignored)                 # ], of a record
    at = at if behind == NULL else behind
    while True:
        behind = behind_character(at, end, 61, level)
        if behind != NULL:
            return behind
        behind = behind_character(at, end, 32, &ignored)
        if behind == NULL:
            behind = behind_character(at, end, 91, &ignored)         # [
            if behind == NULL:
                return NULL
            for _i in range(MOST_BRACKETS):
                at = behind_character(behind, end, 93, &ignored)
                if at != NULL or behind >= end:
                    break
                behind += 1
            if at == NULL:
                return NULL
            behind = at
        at = behind


cdef const char *value_behind(const char *at, const char *end, int level) noexcept:
    """The end of a value, if its equals sign was escaped this often."""
    cdef const char *behind
    cdef int escaped
    while at < end and at[0] != 38:
        if level >= 0 and at[0] == 37:
            behind = behind_character(at, end, 38, &escaped)
            if behind != NULL and escaped == level:
                return at
        at += 1
    return at
