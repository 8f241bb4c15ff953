# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Values of JSON at given paths, as positions in its octets: nothing is parsed into objects.

One pass, linear, and without memory for each value: parsed JSON takes 60 to 90 times its text
(R63). Every member of a repeated key is looked at, a key may be spelled with escapes, and
several documents may follow each other, as in lines of JSON. The grammar is that of RFC 8259, but
for bare words: NaN and Infinity are let pass. A path is a tuple of keys; "*" is any key or index, and
".." any number of levels.
"""

import json

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr

cdef enum:
    MOST_DEPTH = 1024
    STEPS = 64                          # of all paths: the bits of a mask

MOST_STEPS = STEPS

cdef enum Expected:
    VALUE                               # of a member, or behind a comma of an array
    VALUE_OR_END                        # behind [
    KEY
    KEY_OR_END                          # behind {
    NEXT                                # a comma, or the end of an object or array
    DOCUMENT                            # one more document, or the end


cdef class Paths:
    """Each step is a bit. A set of bits has the steps that may be taken from a value."""
    cdef dict names                     # key -> bits of the steps of this name
    cdef uint64_t any                   # bits of "*"
    cdef uint64_t deep                  # of ".."
    cdef uint64_t last                  # of the last steps
    cdef uint64_t first                 # from the root
    cdef bint counts                    # is an index among the names?

    def __cinit__(self, paths):
        """Raises ValueError if there are more than MOST_STEPS steps."""
        cdef int at = 0
        cdef str step
        self.names = {}
        if sum([len(path) for path in paths]) > STEPS:
            raise ValueError(f"paths of JSON have more than {STEPS} steps in all")
        for path in paths:
            self.first |= (<uint64_t>1) << at
            for step in path:
                if step == "..":
                    self.deep |= (<uint64_t>1) << at
                elif step == "*":
                    self.any |= (<uint64_t>1) << at
                else:
                    self.names[step] = self.names.get(step, 0) | (<uint64_t>1) << at
                    self.counts |= step.isdigit()
                at += 1
            self.last |= (<uint64_t>1) << (at - 1)
        self.first = self.closed(self.first)

    cdef inline uint64_t closed(self, uint64_t steps) noexcept:
        """With the step behind each "..", which may stand for no level."""
        return steps | (steps & self.deep) << 1

    cdef inline uint64_t by(self, uint64_t steps, key, bint *is_last) except? 0:
        """The steps from the value behind this key. `is_last`: a path ends there."""
        cdef uint64_t taken = steps & (<uint64_t>self.names.get(key, 0) | self.any)
        is_last[0] = taken & self.last != 0
        return self.closed((taken & ~self.last) << 1 | (steps & self.deep))


cdef enum:
    NO_SECRET = -1
    SECRET_COMES = -2                       # the next value is one


# Where in the octets the search is, and what it knows there.
cdef struct Search:
    const uint8_t *text
    Py_ssize_t size, at
    Expected expected
    int depth
    uint8_t[MOST_DEPTH + 1] closers         # of each level
    uint64_t[MOST_DEPTH + 1] steps          # from the members of each level
    Py_ssize_t[MOST_DEPTH + 1] numbers      # of the elements of each array
    uint64_t inner                          # steps from the value that comes
    Py_ssize_t secret_at                    # where a secret began, or one of the above
    int secret_depth


def find_values(bytes data not None, Paths paths, size_t most, bint all_escaped=False):
    """(begin, end, is_secret) of values, in order: of those at the paths, and of strings that may
    have a document inside: they begin as it does, or with `all_escaped` have any reverse solidus
    or apostrophe.
    Without paths: of these strings alone. Raises ValueError if the octets are no JSON, or if
    there are more than `most` values."""
    cdef Search s
    cdef list values = []
    cdef uint8_t c
    s.text, s.size, s.at = data, len(data), 0
    s.expected, s.depth, s.closers[0], s.numbers[0] = DOCUMENT, 0, 0, 0
    s.steps[0] = s.inner = paths.first if paths is not None else 0
    s.secret_at, s.secret_depth = NO_SECRET, 0
    if s.size >= 3 and data[:3] == b"\xef\xbb\xbf":
        s.at = 3
    while True:
        skip_space(&s)
        if s.at >= s.size:
            if s.depth or s.expected != DOCUMENT:
                raise ValueError("the document does not end")
            return values
        c = s.text[s.at]
        if s.expected == NEXT:
            if c == 44:                     # ,
                s.at += 1
                s.numbers[s.depth] += 1
                s.expected = KEY if s.closers[s.depth] == 125 else VALUE
                continue
            if c != s.closers[s.depth]:
                raise ValueError("no comma")
            close_level(&s)
        elif s.expected == KEY or s.expected == KEY_OR_END:
            if c != 125 or s.expected == KEY:
                read_key(&s, data, paths)
                continue
            close_level(&s)
        elif s.expected == VALUE_OR_END and c == 93:
            close_level(&s)
        else:
            if s.closers[s.depth] == 93:
                enter_element(&s, paths)
            elif s.depth == 0:
                s.inner = s.steps[0]
            if s.secret_at == SECRET_COMES:
                s.secret_at = s.at
            if c == 123 or c == 91:
                open_level(&s, c)
                continue
            read_scalar(&s, c, values, most, all_escaped)
        # A value has ended
        s.expected = NEXT if s.depth else DOCUMENT
        if s.secret_at >= 0 and s.depth == s.secret_depth:
            add(values, s.secret_at, s.at, True, most)
            s.secret_at = NO_SECRET


cdef inline void skip_space(Search *s) noexcept:
    cdef uint8_t c
    while s.at < s.size:
        c = s.text[s.at]
        if c != 32 and c != 10 and c != 13 and c != 9 and (c != 0x1e or s.depth):   # RFC 7464
            return
        s.at += 1


cdef inline void close_level(Search *s) noexcept:
    s.at += 1
    s.depth -= 1


cdef inline int open_level(Search *s, uint8_t c) except -1:
    if s.depth >= MOST_DEPTH:
        raise ValueError("too deep")
    s.at += 1
    s.depth += 1
    s.closers[s.depth] = c + 2
    s.steps[s.depth] = s.inner if s.secret_at < 0 else 0
    s.numbers[s.depth] = 0
    s.expected = KEY_OR_END if c == 123 else VALUE_OR_END
    return 0


cdef inline int read_key(Search *s, bytes data, Paths paths) except -1:
    """And the colon behind it."""
    cdef Py_ssize_t begin = s.at, end
    cdef bint escaped
    if s.text[begin] != 34:
        raise ValueError("no key")
    end = s.at = string_end(s.text, begin, s.size, &escaped)
    while s.at < s.size and s.text[s.at] in (32, 10, 13, 9):
        s.at += 1
    if s.at >= s.size or s.text[s.at] != 58:
        raise ValueError("no colon")
    s.at += 1
    s.expected = VALUE
    s.inner = 0
    if s.steps[s.depth] and s.secret_at < 0:
        follow(s, paths, key_of(data, begin, end, escaped))
    return 0


cdef inline int enter_element(Search *s, Paths paths) except -1:
    """The value that comes is an array's."""
    s.inner = 0
    if s.steps[s.depth] and s.secret_at < 0:
        follow(s, paths, str(s.numbers[s.depth]) if paths.counts else None)
    return 0


cdef inline int follow(Search *s, Paths paths, key) except -1:
    cdef bint is_secret = False
    s.inner = paths.by(s.steps[s.depth], key, &is_secret)
    if is_secret:
        s.secret_at, s.secret_depth = SECRET_COMES, s.depth
    return 0


cdef inline int read_scalar(Search *s, uint8_t c, list values, size_t most,
                            bint all_escaped) except -1:
    """A string or a word. A string that may have a document is added to the values."""
    cdef Py_ssize_t begin = s.at
    cdef bint escaped
    if c == 34:
        s.at = string_end(s.text, begin, s.size, &escaped)
        if s.secret_at < 0 and (
                escaped and (all_escaped or may_nest(s.text, begin + 1, s.at)) or (
                    all_escaped and memchr(s.text + begin, 39, s.at - begin) != NULL)):
            add(values, begin, s.at, False, most)
        return 0
    while s.at < s.size and is_word(s.text[s.at]):
        s.at += 1
    if s.at == begin:
        raise ValueError("no value")
    return 0


cdef int add(list values, Py_ssize_t begin, Py_ssize_t end, bint is_secret,
             Py_ssize_t most) except -1:
    if len(values) >= most:
        raise ValueError("too many values")
    values.append((begin, end, is_secret))
    return 0


cdef Py_ssize_t string_end(const uint8_t *text, Py_ssize_t at, Py_ssize_t size,
                           bint *escaped) except -1:
    """Returns the place behind the closing quotation mark. `escaped`: a reverse solidus is inside."""
    escaped[0] = False
    at += 1
    while at < size:
        if text[at] == 34:
            return at + 1
        if text[at] == 92:
            escaped[0] = True
            at += 1
        at += 1
    raise ValueError("a string does not end")


cdef object key_of(bytes data, Py_ssize_t begin, Py_ssize_t end, bint escaped):
    if escaped:
        return json.loads(data[begin:end])
    return data[begin + 1:end - 1].decode("utf-8", "surrogateescape")


cdef inline bint is_word(uint8_t c) noexcept:
    """Is it an octet of a number, or of null, true, false, NaN or Infinity?"""
    return 48 <= c <= 57 or 97 <= c <= 122 or 65 <= c <= 90 or c == 43 or c == 45 or c == 46


cdef bint may_nest(const uint8_t *text, Py_ssize_t at, Py_ssize_t end) noexcept:
    """Does a string begin as a document does, behind a mark, white space and escapes of it?"""
    if at + 3 < end and text[at] == 0xef and text[at + 1] == 0xbb and text[at + 2] == 0xbf:
        at += 3
    while at + 1 < end and (text[at] == 32 or 9 <= text[at] <= 13 or (
            text[at] == 92 and (text[at + 1] == 110 or text[at + 1] == 114
                                or text[at + 1] == 116))):
        at += 2 if text[at] == 92 else 1
    return text[at] == 123 or text[at] == 91 or (text[at] == 92 and text[at + 1] == 117)
