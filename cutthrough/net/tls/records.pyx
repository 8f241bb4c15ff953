# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records of TLS 1.2 and 1.3 behind the handshake: bytes to bytes, no socket.

    sealed bytes ──open_record──> plain bytes, or a message ──> take_messages, take_alert
    plain bytes ──seal_record──> sealed bytes

Not by libssl, because its object has 13 KiB, and a connection at rest needs two keys and two
numbers.
The AEAD and the HMAC of the key schedule are libcrypto's. This module has the format of a record
(RFC 8446 section 5, RFC 5246 section 6.2.3), its nonce, and the messages that may come: alert,
KeyUpdate, NewSessionTicket, and the refused wish to renegotiate.

A nonce must never come twice with one key. It is the IV, exclusive-or the record's number
(RFC 8446 section 5.3, RFC 7905). A number is used once, or its record has never left this
process. AES-GCM of TLS 1.2 has 8 bytes of the nonce in the record (RFC 5288): libssl began with a
random number for its only record, Finished, and our half of the IV is another random number. They
meet in n records with a probability of n / 2^64, and n is at most 2^32 (as NIST SP 800-38D
section 8.3 demands of random nonces).

SLOTS cipher contexts of libcrypto are shared, because one has 1.1 KiB for each direction: if a
connection finds the keys of another one in its place, it sets its own.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.keys cimport Half, cipher_of, renew_key
from cutthrough.net.tls.openssl cimport EVP_CIPHER, EVP_CIPHER_CTX

cdef enum:
    SLOTS = 64
    TAG = 16
    HELLO_REQUEST = 0       # HandshakeType
    CLIENT_HELLO = 1
    NEW_SESSION_TICKET = 4
    KEY_UPDATE = 24
    LONGEST_TICKET = 131338     # two numbers, nonce, ticket, extensions (RFC 8446 section 4.6.1)
    MOST_MESSAGES = 255     # each costs as much as a request and carries nothing

# RFC 8446 section 5.5 has 2^24.5 for AES-GCM (R85)
cdef uint64_t records_of_key = 1 << 24
cdef uint64_t MOST_RECORDS = <uint64_t>1 << 32

# Cipher contexts, and the connection whose keys they have
cdef struct Slot:
    const Records *owner
    EVP_CIPHER_CTX *contexts[2]     # opens, seals; NULL: not made yet
    const EVP_CIPHER *ciphers[2]    # of the context; NULL: none
    bint keyed[2]

cdef Slot[SLOTS] slots
cdef int next_slot = 0


cdef void start_records(Records *r) noexcept nogil:
    global next_slot
    r.slot = <uint8_t>next_slot
    next_slot = (next_slot + 1) % SLOTS


cdef void wipe_records(Records *r) noexcept nogil:
    cdef Slot *slot = &slots[r.slot]
    cdef int i
    if slot.owner == r:
        for i in range(2):
            if slot.contexts[i] != NULL:
                openssl.EVP_CIPHER_CTX_reset(slot.contexts[i])
            slot.ciphers[i] = NULL
        slot.owner = NULL
    openssl.OPENSSL_cleanse(r, sizeof(Records))


# --- records


cdef size_t sealed_at(const Records *r) noexcept nogil:
    return HEADER + r.keys.explicit_n


cdef size_t overhead(const Records *r) noexcept nogil:
    return HEADER + r.keys.explicit_n + r.keys.is_13 + TAG


cdef inline void make_nonce(const Half *half, unsigned char *nonce) noexcept nogil:
    cdef int i
    memcpy(nonce, half.iv, 12)
    for i in range(8):
        nonce[4 + i] ^= <unsigned char>(half.seq >> (56 - 8 * i))


cdef size_t extra_data(const Records *r, const Half *half, const unsigned char *header, size_t n,
                       unsigned char *out) noexcept nogil:
    """Writes the bytes that the tag covers beside the content: in TLS 1.3 the header (RFC 8446 section
    5.2), in 1.2 number, kind, version, and length of the plain bytes (RFC 5246 section 6.2.3.3)."""
    cdef int i
    if r.keys.is_13:
        memcpy(out, header, HEADER)
        return HEADER
    for i in range(8):
        out[i] = <unsigned char>(half.seq >> (56 - 8 * i))
    out[8], out[9], out[10] = header[0], 3, 3
    out[11], out[12] = <unsigned char>(n >> 8), <unsigned char>(n & 255)
    return 13


cdef EVP_CIPHER_CTX *set_up(Records *r, bint seals,
                            const unsigned char *nonce) noexcept nogil:
    """The context with this direction's key and the nonce; NULL: failed."""
    cdef Slot *slot = &slots[r.slot]
    cdef const EVP_CIPHER *cipher = NULL
    cdef const unsigned char *key = NULL
    cdef Half *half
    if slot.owner != r:
        slot.owner = r
        slot.keyed[0] = slot.keyed[1] = False
    if not slot.keyed[seals]:
        half = &r.keys.tx if seals else &r.keys.rx
        key = half.key
        if slot.contexts[seals] == NULL:
            slot.contexts[seals] = openssl.EVP_CIPHER_CTX_new()
            slot.ciphers[seals] = NULL
        if slot.contexts[seals] == NULL:
            return NULL
        if slot.ciphers[seals] != cipher_of(&r.keys):
            cipher = cipher_of(&r.keys)
    if openssl.EVP_CipherInit_ex(slot.contexts[seals], cipher, NULL, key, nonce, seals) != 1:
        slot.owner = NULL
        return NULL
    slot.ciphers[seals] = cipher_of(&r.keys)
    slot.keyed[seals] = True
    return slot.contexts[seals]


cdef Opened bad(Records *r, int alert) noexcept nogil:
    r.alert = <uint8_t>alert
    return OPENED_BAD


cdef int fault_of_header(const Records *r, const unsigned char *header) noexcept nogil:
    cdef int kind = header[0]
    # TLS 1.3 has all kinds as this one; a change_cipher_spec belongs to handshakes alone
    if kind != APPLICATION_DATA and (r.keys.is_13 or kind != ALERT and kind != HANDSHAKE):
        return UNEXPECTED_MESSAGE
    return RECORD_OVERFLOW if HEADER + (header[3] << 8 | header[4]) > MOST_RECEIVED else 0


cdef Opened open_record(Records *r, unsigned char *record, size_t size, unsigned char *out,
                        size_t *n) noexcept nogil:
    cdef unsigned char nonce[12]
    cdef unsigned char extra[13]
    cdef size_t before = sealed_at(r)
    cdef size_t extra_n, sealed
    cdef int kind = record[0]
    cdef int done = 0
    cdef EVP_CIPHER_CTX *ctx
    n[0] = 0
    if size < before + TAG:
        return bad(r, BAD_RECORD_MAC)
    sealed = size - before - TAG
    if sealed > <size_t>RECORD + r.keys.is_13:
        return bad(r, RECORD_OVERFLOW)
    make_nonce(&r.keys.rx, nonce)
    if r.keys.explicit_n:
        memcpy(nonce + 4, record + HEADER, 8)
    extra_n = extra_data(r, &r.keys.rx, record, sealed, extra)
    ctx = set_up(r, False, nonce)
    if ctx == NULL or r.keys.rx.seq == <uint64_t>-1:
        return bad(r, INTERNAL_ERROR)
    if (openssl.EVP_CIPHER_CTX_ctrl(ctx, openssl.EVP_CTRL_AEAD_SET_TAG, TAG,
                                    record + before + sealed) != 1
            or openssl.EVP_CipherUpdate(ctx, NULL, &done, extra, <int>extra_n) != 1
            or sealed and openssl.EVP_CipherUpdate(
                ctx, out, &done, record + before, <int>sealed) != 1
            or openssl.EVP_CipherFinal_ex(ctx, out + sealed, &done) != 1):
        openssl.ERR_clear_error()
        return bad(r, BAD_RECORD_MAC)
    r.keys.rx.seq += 1
    if r.keys.is_13:
        while sealed and out[sealed - 1] == 0:
            sealed -= 1                 # padding; the last byte that is not zero is the kind
        if sealed == 0:
            return bad(r, UNEXPECTED_MESSAGE)
        sealed -= 1
        kind = out[sealed]
    if kind != APPLICATION_DATA:
        return take_message(r, kind, out, sealed)
    if r.head_n or r.skips:             # no other record between parts of a message
        return bad(r, UNEXPECTED_MESSAGE)
    n[0] = sealed
    return OPENED_DATA


cdef size_t seal_record(Records *r, int kind, const void *data, size_t n,
                        unsigned char *out) noexcept nogil:
    cdef iovec piece = iovec(<void *>data, n)
    return seal_pieces(r, kind, &piece, 0, n, out)


cdef bint seal_plain(EVP_CIPHER_CTX *ctx, const iovec *piece, size_t skip, size_t n,
                     unsigned char *out) noexcept nogil:
    """The cipher goes on across pieces: to cut them costs some 20 ns."""
    cdef size_t step
    cdef int done = 0
    while n:
        step = min(n, piece.iov_len - skip)
        if step and openssl.EVP_CipherUpdate(
                ctx, out, &done, <const unsigned char *>piece.iov_base + skip, <int>step) != 1:
            return False
        out += step
        n -= step
        skip = 0
        piece += 1
    return True


cdef size_t seal_pieces(Records *r, int kind, const iovec *pieces, size_t skip, size_t n,
                        unsigned char *out) noexcept nogil:
    cdef unsigned char nonce[12]
    cdef unsigned char extra[13]
    cdef unsigned char last = <unsigned char>kind
    cdef size_t before = sealed_at(r)
    cdef size_t inner = n + r.keys.is_13
    cdef size_t extra_n, size = r.keys.explicit_n + inner + TAG
    cdef int done = 0
    cdef EVP_CIPHER_CTX *ctx
    if r.keys.tx.seq >= MOST_RECORDS or n > RECORD:
        return 0
    out[0], out[1], out[2] = <unsigned char>(APPLICATION_DATA if r.keys.is_13 else kind), 3, 3
    out[3], out[4] = <unsigned char>(size >> 8), <unsigned char>(size & 255)
    make_nonce(&r.keys.tx, nonce)
    memcpy(out + HEADER, nonce + 4, r.keys.explicit_n)
    extra_n = extra_data(r, &r.keys.tx, out, n, extra)
    ctx = set_up(r, True, nonce)
    if (ctx == NULL
            or openssl.EVP_CipherUpdate(ctx, NULL, &done, extra, <int>extra_n) != 1
            or not seal_plain(ctx, pieces, skip, n, out + before)
            or r.keys.is_13 and openssl.EVP_CipherUpdate(
                ctx, out + before + n, &done, &last, 1) != 1
            or openssl.EVP_CipherFinal_ex(ctx, out + before + inner, &done) != 1
            or openssl.EVP_CIPHER_CTX_ctrl(
                ctx, openssl.EVP_CTRL_AEAD_GET_TAG, TAG, out + before + inner) != 1):
        openssl.ERR_clear_error()
        return 0
    r.keys.tx.seq += 1
    return HEADER + size


# --- messages


cdef bint renew(Records *r, bint seals) noexcept nogil:
    if slots[r.slot].owner == r:
        slots[r.slot].keyed[seals] = False
    return renew_key(&r.keys, &r.keys.tx if seals else &r.keys.rx)


cdef Opened count(Records *r) noexcept nogil:
    """A message that is no bytes: a flood of them ends the connection."""
    if r.messages == MOST_MESSAGES:
        return bad(r, UNEXPECTED_MESSAGE)
    r.messages += 1
    return OPENED_MESSAGE


cdef Opened take_message(Records *r, int kind, const unsigned char *data, size_t n) noexcept nogil:
    if kind == HANDSHAKE:
        return take_messages(r, data, n)
    if kind != ALERT or r.head_n or r.skips:
        return bad(r, UNEXPECTED_MESSAGE)
    return take_alert(r, data, n)


cdef Opened take_alert(Records *r, const unsigned char *data, size_t n) noexcept nogil:
    if n != 2:                          # RFC 8446 section 5.4; RFC 5246 section 6.2.1
        return bad(r, DECODE_ERROR if n else UNEXPECTED_MESSAGE)
    if data[1] == CLOSE_NOTIFY:
        return OPENED_END
    # All others of TLS 1.3 are fatal, whatever level they have (RFC 8446 section 6)
    if data[1] == USER_CANCELED or not r.keys.is_13 and data[0] == WARNING:
        return count(r)
    r.alert = data[1]
    return OPENED_REFUSED


cdef Opened take_messages(Records *r, const unsigned char *data, size_t n) noexcept nogil:
    """Handshake messages, any number of them or a part of one."""
    cdef Opened answer = OPENED_MESSAGE
    cdef size_t at = 0, skipped
    if n == 0:
        return bad(r, UNEXPECTED_MESSAGE)
    while at < n and answer == OPENED_MESSAGE:
        if r.skips:
            skipped = min(<size_t>r.skips, n - at)
            r.skips -= <uint32_t>skipped
            at += skipped
            continue
        r.head[r.head_n] = data[at]
        r.head_n += 1
        at += 1
        if r.head_n == 4:
            answer = take_header(r)
        elif r.head_n == 5:
            answer = update_keys(r, at == n)
    return answer


cdef Opened take_header(Records *r) noexcept nogil:
    cdef int kind = r.head[0]
    cdef uint32_t n = r.head[1] << 16 | r.head[2] << 8 | r.head[3]
    if r.keys.is_13 and kind == KEY_UPDATE:
        return OPENED_MESSAGE if n == 1 else bad(r, DECODE_ERROR)
    r.head_n = 0
    r.skips = n
    if r.keys.is_13 and r.keys.connects and kind == NEW_SESSION_TICKET:
        return count(r) if n <= LONGEST_TICKET else bad(r, DECODE_ERROR)
    if r.keys.is_13 or kind != (HELLO_REQUEST if r.keys.connects else CLIENT_HELLO):
        return bad(r, UNEXPECTED_MESSAGE)
    r.refuse_due = True
    return count(r) if n <= RECORD else bad(r, DECODE_ERROR)


cdef Opened update_keys(Records *r, bint whole) noexcept nogil:
    """RFC 8446 section 4.6.3. Nothing may follow in the record (section 5.1)."""
    cdef int requested = r.head[4]
    r.head_n = 0
    if requested > 1:
        return bad(r, ILLEGAL_PARAMETER)
    if not whole:
        return bad(r, UNEXPECTED_MESSAGE)
    if not renew(r, False):
        return bad(r, INTERNAL_ERROR)
    r.update_due |= requested
    r.renewed = True
    return count(r)


cdef bint needs_update(const Records *r) noexcept nogil:
    return r.update_due or r.keys.is_13 and r.keys.tx.seq >= records_of_key


cdef bint is_spent(uint64_t records) noexcept nogil:
    return records >= records_of_key


def set_records_of_key(uint64_t most):
    """Records that a sending key of TLS 1.3 is used for, at most: fewer in a test."""
    global records_of_key
    records_of_key = most


cdef size_t seal_update(Records *r, unsigned char *out) noexcept nogil:
    cdef size_t size = seal_record(r, HANDSHAKE, b"\x18\0\0\1\0", 5, out)
    r.update_due = False
    return size if size and renew(r, True) else 0
