"""The fields of an HTTP/2 header block, and lines of HTTP/1.1 that say the same."""

cdef enum:
    FIELD_EXTRA = 4             # octets of a record that are not its name or value

cdef struct Text:
    const char *data            # NULL: absent
    size_t n

cdef struct Record:
    Text name
    Text value

cdef struct Output:
    char *at
    char *end
    bint full                   # something had no room

# The fields of a header block stand one behind the other as records: the lengths of name and
# value, two octets each in the order of this machine, then both. A name or value has at most
# 65535 octets. Returns the number of octets written to `out`, which has room for a record.
cdef size_t put_field(char *out, const char *name, size_t name_len, const char *value,
                      size_t value_len) noexcept nogil
# Reads the record at `p`; returns the place of the next one.
cdef const char *next_field(const char *p, Record *out) noexcept nogil
# The same without white space around the value, because apps and origins send it, and other
# proxies trim it, although RFC 9113 section 8.2.1 has it malformed.
cdef const char *next_trimmed(const char *p, Record *out) noexcept nogil
# A regular field of a response that HTTP/1.1 could have brought: its value may have controls.
cdef bint is_answered(const Record *field) noexcept nogil
# A regular field of HTTP/2 that is one of HTTP/1.1: both of these.
cdef bint is_field(const Record *field) noexcept nogil
cdef bint is_well_formed(const Record *field) noexcept nogil
cdef bint is_value(const Text *value) noexcept nogil

cdef void put(Output *out, const char *data, size_t n) noexcept nogil
cdef void put_text(Output *out, const Text *text) noexcept nogil
cdef void put_line(Output *out, const Record *field) noexcept nogil

# Writes the lines of a trailer section, without the empty line. Returns their length; -1: a field
# is malformed, or has no room.
cdef int build_trailers_of_http2(char *out, size_t room, const char *records, size_t n) noexcept nogil
