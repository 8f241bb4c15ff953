# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A line by a format, whose codes are compiled once into steps that run in C.

A step has a code, a literal's bytes, and the encoding and alignment of its field. Each
step knows how many bytes the later steps may need, so that a long value is cut early
enough to leave room for the rest of the line. `fields` has the value of each code.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy, memmove, memset
from cutthrough.log.fields cimport S_FIELD, S_TEXT, S_TLV, Ending, Step, put_field
from cutthrough.log.jsonline cimport Line
from cutthrough.log.text cimport Q_BRACED, Q_CSV, Q_MIME, Q_PERCENT, Q_STRING, Q_URL
from cutthrough.net cimport linux
from cutthrough.session.model.client cimport Client
from cutthrough.wire.chars cimport equals_lower
from cutthrough.wire.http1 cimport Field, Head
from cutthrough.config.log_format import AROUND_CSV, HEADINGS, PRESETS, TLVS, most_bytes, parse_format
from cutthrough.log.fields import NUMBERS

cdef enum:
    AROUND = 3              # config.log_format.AROUND_CSV
    MOST_NOTED = 65536      # tunnels with kept fields; further ones show "-"
    MOST_VALUE = 512        # octets kept of a field

assert AROUND_CSV == <int>AROUND


cdef class FormatLine(Line):
    cdef Step *steps
    cdef int n
    cdef list texts         # bytes that the steps point into
    cdef list names         # of fields
    cdef dict noted         # kept fields: a tuple of values by request id
    cdef uint64_t sequence

    def __cinit__(self):
        self.steps = NULL

    def __init__(self, text, worker):
        """`text`: a format, or the name of a preset. Raises ValueError."""
        cdef Step *step
        cdef bytes argument
        cdef size_t behind = 0
        parsed = parse_format(PRESETS.get(text, text))
        self.worker = worker
        self.texts = []
        self.names = []
        self.noted = {}
        self.steps = <Step *>calloc(len(parsed), sizeof(Step))
        if self.steps == NULL:
            raise MemoryError
        self.n = len(parsed)
        for i, directive in enumerate(parsed):
            step = &self.steps[<size_t>i]
            step.code = NUMBERS[directive.code]
            step.is_shell = directive.encoding == "/"
            step.quote = {"": Q_URL, "#": Q_PERCENT, "{": Q_BRACED, "[": Q_MIME,
                          ",": Q_CSV}.get(directive.encoding, Q_STRING)
            step.left, step.zero = directive.left, directive.zero
            step.width, step.most = directive.width, directive.most
            argument = directive.text.encode()
            self.texts.append(argument)
            step.text, step.text_len = argument, len(argument)
            step.made_s = -1
            if step.code == S_FIELD:
                step.field = len(self.names)
                self.names.append(argument)
            elif step.code == S_TLV:
                step.field = TLVS.index(directive.text)
        for i in range(self.n - 1, -1, -1):
            step = &self.steps[<size_t>i]
            step.behind = behind
            behind += most_bytes(parsed[i])
        self.wants_fields = bool(self.names)
        self.heading = HEADINGS.get(text, "").encode()

    def __dealloc__(self):
        free(self.steps)

    @property
    def remembered(self):
        return len(self.noted)

    cdef char *put(self, char *p, Client c, int outcome, const char *last) except NULL:
        cdef Ending ending
        cdef Step *step
        cdef char *end
        cdef tuple noted = self.take_noted(c)
        cdef int i
        self.sequence += 1
        ending.outcome = outcome
        ending.worker = self.worker
        ending.sequence = self.sequence
        linux.clock_gettime(linux.CLOCK_REALTIME, &ending.now)
        for i in range(self.n):
            step = &self.steps[i]
            if step.code == S_TEXT:
                p[0] = step.text[0]         # mostly a space
                if step.text_len != 1:
                    memcpy(p, step.text, step.text_len)
                p += step.text_len
                continue
            if step.quote == Q_CSV:
                p = put_csv(p, step, c, &ending, noted, last - step.behind)
                continue
            end = put_field(p, step, c, &ending, noted, last - step.behind)
            if end == p:
                p[0] = b"-"
                end = p + 1
            if step.width or step.most:
                end = fit(p, end, step)
            p = end
        return p

    cdef int skip(self, Client c) except -1:
        self.take_noted(c)
        return 0

    cdef tuple take_noted(self, Client c):
        if self.noted and c.id_worker == 0:     # else another worker gave the number
            return self.noted.pop(c.request_id, None)
        return None

    cdef int note_head(self, Client c, const Head *head, const char *data) except -1:
        cdef const Field *field
        cdef bytes name
        cdef size_t i
        if len(self.noted) >= MOST_NOTED:
            return 0
        values = []
        for name in self.names:
            value = None
            for i in range(head.n_fields):
                field = &head.fields[i]
                if field.name_len == <size_t>len(name) and equals_lower(
                        data + field.start, name, field.name_len):
                    value = data[field.value:field.value + min(
                        field.value_len, <unsigned int>MOST_VALUE)]
                    break
            values.append(value)
        self.noted[c.request_id] = tuple(values)
        return 0


cdef char *put_csv(char *p, Step *step, Client c, const Ending *ending, tuple noted,
                   const char *last) except NULL:
    """Writes a quoted value, or nothing if there is none. If its first character would begin a
    formula of a spreadsheet, an apostrophe stands before it."""
    cdef char *end = put_field(p + 1, step, c, ending, noted, last - <int>AROUND)
    if end == p + 1:
        return p
    if step.width or step.most:
        end = fit(p + 1, end, step)
    if memchr(b"=+-@", p[1], 4) != NULL:
        memmove(p + 2, p + 1, end - p - 1)
        p[1] = b"'"
        end += 1
    p[0] = end[0] = b'"'
    return end + 1


cdef char *fit(char *p, char *end, Step *step) noexcept:
    """Cuts the value to the greatest width, then pads it to the least."""
    cdef size_t n = end - p
    cdef size_t escapes = 0
    cdef char escape = b'"' if step.quote == Q_CSV else b"\\"
    cdef bint has_pairs = step.quote == Q_CSV or step.quote == Q_STRING
    if step.most and n > step.most:
        n = step.most
        while has_pairs and escapes < n and p[n - 1 - escapes] == escape:
            escapes += 1                    # half an escape would escape the next character
        n -= escapes & 1
        while n and p[n - 1] & 0x80:        # a part of "…"
            n -= 1
    if n < step.width:
        if step.left:
            memset(p + n, b" ", step.width - n)
        else:
            memmove(p + step.width - n, p, n)
            memset(p, b"0" if step.zero else b" ", step.width - n)
        n = step.width
    return p + n
