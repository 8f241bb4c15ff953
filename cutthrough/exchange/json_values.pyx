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


def find_values(bytes data not None, Paths paths, size_t most, bint all_escaped=False):
    """(begin, end, is_secret) of values, in order: of those at the paths, and of strings that may
    have a document inside: they begin as it does, or with `all_escaped` have any reverse solidus
    or apostrophe.
    Without paths: of these strings alone. Raises ValueError if the octets are no JSON, or if
    there are more than `most` values."""
    cdef const uint8_t *text = data
    cdef Py_ssize_t size = len(data), at = 0, begin = 0, secret_at = -1, key_end
    cdef int depth = 0, secret_depth = 0
    cdef uint8_t[MOST_DEPTH + 1] closers
    cdef uint64_t[MOST_DEPTH + 1] steps     # from the members of each level
    cdef Py_ssize_t[MOST_DEPTH + 1] numbers
    cdef uint64_t inner = paths.first if paths is not None else 0
    cdef bint is_secret = False, escaped
    cdef Expected expected = DOCUMENT
    cdef uint8_t c
    cdef list values = []
    closers[0] = 0
    steps[0] = inner
    numbers[0] = 0
    if size >= 3 and data[:3] == b"\xef\xbb\xbf":
        at = 3
    while True:
        while at < size and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9
                             or (text[at] == 0x1e and depth == 0)):     # RFC 7464
            at += 1
        if at >= size:
            if depth or expected != DOCUMENT:
                raise ValueError("the document does not end")
            return values
        c = text[at]
        if expected == NEXT:
            at += 1
            if c == 44:                     # ,
                numbers[depth] += 1
                expected = KEY if closers[depth] == 125 else VALUE
            elif c == closers[depth]:
                depth -= 1
                expected = ended(depth)
            else:
                raise ValueError("no comma")
            if expected != VALUE and expected != KEY and secret_at >= 0 and depth == secret_depth:
                add(values, secret_at, at, True, most)
                secret_at = -1
            continue
        if expected == KEY or expected == KEY_OR_END:
            if c == 125 and expected == KEY_OR_END:
                at += 1
                depth -= 1
                expected = ended(depth)
                if secret_at >= 0 and depth == secret_depth:
                    add(values, secret_at, at, True, most)
                    secret_at = -1
                continue
            if c != 34:
                raise ValueError("no key")
            begin = at
            at = string_end(text, at, size, &escaped)
            key_end = at
            while at < size and (text[at] == 32 or text[at] == 10 or text[at] == 13
                                 or text[at] == 9):
                at += 1
            if at >= size or text[at] != 58:
                raise ValueError("no colon")
            at += 1
            inner = 0
            is_secret = False
            if steps[depth] and secret_at < 0:
                inner = paths.by(steps[depth], key_of(data, begin, key_end, escaped), &is_secret)
            expected = VALUE
            if is_secret:
                secret_at, secret_depth = -2, depth     # its value comes
            continue
        # A value
        if closers[depth] == 93:
            if c == 93 and expected == VALUE_OR_END:
                at += 1
                depth -= 1
                expected = ended(depth)
                if secret_at >= 0 and depth == secret_depth:
                    add(values, secret_at, at, True, most)
                    secret_at = -1
                continue
            inner = 0
            if steps[depth] and secret_at < 0:
                is_secret = False
                inner = paths.by(
                    steps[depth], str(numbers[depth]) if paths.counts else None, &is_secret)
                if is_secret:
                    secret_at, secret_depth = -2, depth
        elif depth == 0:
            inner = steps[0]
        begin = at
        if secret_at == -2:
            secret_at = at
        if c == 123 or c == 91:
            if depth >= MOST_DEPTH:
                raise ValueError("too deep")
            depth += 1
            closers[depth] = c + 2
            steps[depth] = inner if secret_at < 0 else 0
            numbers[depth] = 0
            at += 1
            expected = KEY_OR_END if c == 123 else VALUE_OR_END
            continue
        if c == 34:
            at = string_end(text, at, size, &escaped)
            if secret_at < 0 and (escaped and (all_escaped or may_nest(text, begin + 1, at)) or (
                    all_escaped and memchr(text + begin, 39, at - begin) != NULL)):
                add(values, begin, at, False, most)
        else:
            while at < size and is_word(text[at]):
                at += 1
            if at == begin:
                raise ValueError("no value")
        expected = ended(depth)
        if secret_at >= 0 and depth == secret_depth:
            add(values, secret_at, at, True, most)
            secret_at = -1


cdef inline Expected ended(int depth) noexcept:
    """The tokens that may follow a value."""
    return NEXT if depth else DOCUMENT


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
