# cython: language_level=3
"""Doors to records of TLS: one side of a connection, with given secrets."""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from cutthrough.net.tls.keys cimport FIRST_CHACHA, Half, derive_key
from cutthrough.net.tls.records cimport (
    HEADER, MOST_OVERHEAD, OPENED_BAD, Records, fault_of_header, needs_update, open_record,
    seal_record, seal_update, start_records, wipe_records)

OPENED = ("data", "message", "end", "refused", "bad")
KEYS = (16, 32, 32)                     # bytes of a key, by the cipher
HASHES = (32, 48, 32)


cdef class Side:
    """`cipher`: 0 AES-128-GCM, 1 AES-256-GCM, 2 ChaCha20. `ours`, `theirs`: 48 bytes each, the
    secret or the key and IV for bytes that this side and the other send."""
    cdef Records r

    def __init__(self, int cipher, bint is_13, bint connects, bytes ours, bytes theirs):
        assert len(ours) == len(theirs) == 48
        memset(&self.r, 0, sizeof(Records))
        self.r.keys.cipher = cipher
        self.r.keys.key_n, self.r.keys.hash_n = KEYS[cipher], HASHES[cipher]
        self.r.keys.explicit_n = 8 if cipher != FIRST_CHACHA and not is_13 else 0
        self.r.keys.is_13, self.r.keys.connects, self.r.keys.most = is_13, connects, 16384
        self.fill(&self.r.keys.tx, ours)
        self.fill(&self.r.keys.rx, theirs)
        start_records(&self.r)

    cdef int fill(self, Half *half, bytes secret) except -1:
        memcpy(half.secret, <char *>secret, 48)
        memcpy(half.key, <char *>secret, 32)
        memcpy(half.iv, <char *>secret + 32, 12)
        if self.r.keys.is_13 and not derive_key(&self.r.keys, half):
            raise RuntimeError("derive_key")
        return 0

    def __dealloc__(self):
        wipe_records(&self.r)

    def seal(self, int kind, bytes data):
        """A record, b"" if it fails. TLS 1.3 with a kind of 0: the data ends with its own kind,
        and padding."""
        cdef bytearray out = bytearray(len(data) + MOST_OVERHEAD)
        cdef size_t n = seal_record(&self.r, kind, <char *>data, len(data),
                                    <unsigned char *><char *>out)
        return bytes(out[:n])

    def update(self, bint requests=False):
        """A KeyUpdate."""
        cdef bytearray out = bytearray(64)
        cdef size_t n
        if requests:
            message = self.seal(22, b"\x18\0\0\1\1")
            seal_update(&self.r, <unsigned char *><char *>out)      # the new key alone
            return message
        n = seal_update(&self.r, <unsigned char *><char *>out)
        return bytes(out[:n])

    def open(self, bytes record, bint in_place=False):
        """Returns (a word of OPENED, plain bytes, the alert or 0). The buffers have no byte more
        than they must."""
        cdef size_t size = len(record), n = 0
        cdef unsigned char *copy
        cdef unsigned char *out
        cdef int got
        assert size >= HEADER and size == HEADER + int.from_bytes(record[3:5], "big")
        copy = <unsigned char *>malloc(size)
        memcpy(copy, <char *>record, size)
        out = copy + HEADER + self.r.keys.explicit_n if in_place else (
            <unsigned char *>malloc(size - HEADER))
        self.r.alert = fault_of_header(&self.r, copy)
        got = OPENED_BAD if self.r.alert else open_record(&self.r, copy, size, out, &n)
        data = (<char *>out)[:n]
        if not in_place:
            free(out)
        free(copy)
        return OPENED[got], data, self.r.alert if got == OPENED_BAD else 0

    @property
    def needs_update(self):
        return bool(needs_update(&self.r))

    @property
    def refuses(self):
        return bool(self.r.refuse_due)

    @property
    def numbers(self):
        return self.r.keys.rx.seq, self.r.keys.tx.seq

    @numbers.setter
    def numbers(self, both):
        self.r.keys.rx.seq, self.r.keys.tx.seq = both
