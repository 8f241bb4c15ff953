# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbered sets of globs for paths: /api/*/users/**.

`*` stands for any characters within a segment, none too; `**` for any number of segments, none
too, so that /api/** matches /api, /api/ and all below. Anything else stands for itself, case
included. A glob is compared with each reading of a path (wire.paths); `parse_glob` gives it the
same canonical spelling.

In a compiled glob one byte stands for `*` and one for `**`; no spelling has these bytes. When the
texts differ, the comparison goes back to the last `*` of the segment, or to the last `**`, never
further, because an earlier star could take nothing more. So it takes at most as many steps as the
product of both lengths.
"""

import re

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memset
from cutthrough.wire.paths cimport Path, read_path
from cutthrough.wire.paths import readings_of

cdef enum:
    ANY = 1                 # compiled `*`
    DEPTH = 2               # compiled `**`, a segment of its own
    MOST_GLOB = 256

_UNIT = re.compile(rb"%[0-9A-Fa-f]{2}|.", re.S)
# What stands in a segment as it is; `;` begins parameters, which some readings do not have
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                   b"-._~!$&'()*+,=:@/")


def parse_glob(text):
    """Returns the glob in canonical spelling; `%2A` is an asterisk of the path. Raises
    ValueError."""
    why = refusal_of(text)
    if why:
        raise ValueError(f"{text!r} {why}")
    glob = b"".join([spell(unit) for unit in _UNIT.findall(text.encode())])
    # An asterisk between two slashes is no dot segment, and any other is no empty one
    if len(glob) > MOST_GLOB or not readings_of(glob):
        raise ValueError(
            f"{text!r} can match no path: it has an empty segment, the segments . or .., an "
            "encoded slash, backslash or control character, an encoded percent sign before two "
            f"hexadecimal digits, or more than {<int>MOST_GLOB} bytes")
    return (glob.decode(),)


def refusal_of(text):
    """Returns the mistake in a glob, if it has a word of advice; else ""."""
    if not text.startswith("/"):
        return "does not begin with /" + (
            "; hosts belong in `hosts`" if "://" in text else "")
    if "?" in text:
        return "has a ?: the query is not compared, and * stands for characters"
    if "#" in text:
        return "has a #: no request has a fragment"
    if "\\" in text:
        return "has a backslash: a path has slashes"
    if ";" in text or "%3b" in text.lower():
        return "has a ;: parameters of a segment are not compared alone, write * for them"
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        return "has a % before no two hexadecimal digits: %25 is a percent sign"
    if any(["**" in segment and segment != "**" for segment in text.split("/")]):
        return "has ** beside other characters: it stands for whole segments, as in /a/**/b"
    return ""


def spell(unit):
    if len(unit) == 3:
        octet = int(unit[1:], 16)
        if octet in _PLAIN and octet not in b"*/":
            return bytes([octet])
        return unit.upper()
    return unit if unit[0] in _PLAIN else b"%%%02X" % unit[0]


cdef bytes compile_glob(str glob):
    segments = [bytes([DEPTH]) if segment == b"**"
                else segment.replace(b"*", bytes([ANY])).replace(b"%2A", b"*")
                for segment in glob.encode().split(b"/")]
    return b"/".join(segments)


cdef class GlobSets:

    def __cinit__(self):
        self.numbers = {(): 0}
        self.texts = []
        self.n = 1
        self.sets = <GlobSet *>malloc(sizeof(GlobSet))
        if self.sets == NULL:
            raise MemoryError
        memset(self.sets, 0, sizeof(GlobSet))

    def __dealloc__(self):
        cdef uint32_t i
        if self.sets != NULL:
            for i in range(self.n):
                free(self.sets[i].globs)
        free(self.sets)

    cdef uint32_t number(self, tuple globs) except? 0:
        number = self.numbers.get(globs)
        if number is None:
            number = self.numbers[globs] = self.n
            self.add(globs)
        return number

    cdef int add(self, tuple globs) except -1:
        cdef GlobSet *sets = <GlobSet *>realloc(self.sets, (self.n + 1) * sizeof(GlobSet))
        cdef GlobSet *glob_set
        cdef bytes compiled
        cdef size_t i
        if sets == NULL:
            raise MemoryError
        self.sets = sets
        glob_set = &sets[self.n]
        glob_set.n = <uint32_t>len(globs)
        glob_set.globs = <Glob *>malloc(len(globs) * sizeof(Glob) + 1)
        if glob_set.globs == NULL:
            raise MemoryError
        self.n += 1
        for i, glob in enumerate(globs):
            compiled = compile_glob(glob)
            self.texts.append(compiled)
            glob_set.globs[i].text = compiled
            glob_set.globs[i].n = len(compiled)
            self.bytes += sizeof(Glob) + len(compiled)
        return 0

    cdef bint meets(self, uint32_t number, Path *path, bint any_reading) noexcept nogil:
        cdef int i
        if path.text == NULL:
            return not any_reading
        if not path.is_read:
            read_path(path)
        if path.n_readings == 0:
            return any_reading
        for i in range(path.n_readings):
            if has_match(&self.sets[number], path.readings[i], path.lengths[i]) == any_reading:
                return any_reading
        return not any_reading


cdef bint has_match(const GlobSet *glob_set, const char *text, size_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(glob_set.n):
        if matches(glob_set.globs[i].text, glob_set.globs[i].n, text, n):
            return True
    return False


# Both texts stand before the "/" of a segment, or at their end.
cdef bint matches(const char *glob, size_t glob_len, const char *text,
                  size_t text_len) noexcept nogil:
    cdef const char *g = glob
    cdef const char *t = text
    cdef const char *g_end = glob + glob_len
    cdef const char *t_end = text + text_len
    cdef const char *g_next
    cdef const char *t_next
    cdef const char *rest = NULL        # of the glob, behind the last `**`
    cdef const char *tried = NULL       # where the text was compared with `rest`
    while True:
        if g == g_end:
            if t == t_end:
                return True
        elif g[1] == DEPTH:
            g += 2
            if g == g_end:
                return True
            rest = g
            tried = t
            continue
        elif t != t_end:
            g_next = segment_end(g, g_end)
            t_next = segment_end(t, t_end)
            if fits(g + 1, g_next, t + 1, t_next):
                g = g_next
                t = t_next
                continue
        if rest == NULL or tried == t_end:
            return False
        tried = segment_end(tried, t_end)
        g = rest
        t = tried


cdef inline const char *segment_end(const char *p, const char *end) noexcept nogil:
    cdef const char *slash = <const char *>memchr(p + 1, c'/', end - p - 1)
    return end if slash == NULL else slash


# One segment. An encoded octet is one character for `*`.
cdef bint fits(const char *g, const char *g_end, const char *t,
               const char *t_end) noexcept nogil:
    cdef const char *rest = NULL        # of the glob, behind the last `*`
    cdef const char *tried = NULL       # where the text was compared with `rest`
    while t < t_end:
        if g < g_end and g[0] == ANY:
            g += 1
            rest = g
            tried = t
        elif g < g_end and g[0] == t[0]:
            g += 1
            t += 1
        elif rest == NULL:
            return False
        else:
            tried += 3 if tried[0] == c'%' else 1
            g = rest
            t = tried
    while g < g_end and g[0] == ANY:
        g += 1
    return g == g_end
