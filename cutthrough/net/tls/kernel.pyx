# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records by the kernel (kTLS): a direction of a connection whose keys the kernel has.

    kernel's records ──splice──> pipe ──splice──> the other socket, or the kernel's records
                     ──recvmsg─> messages, of which splice stops with EINVAL; and bytes

When a pump is to splice, the kernel gets key, IV and the number of the next record of that
direction. Nothing of a record may be left on our side, because the kernel must begin with a whole
one: reads end at the end of a received record (EXACT), and if a sent one is begun, it goes first.

The kernel keeps its first key, because kernels before 6.14 cannot renew it. If a peer renews its
own, or requests that we do, the peer gets internal_error, and the connection ends; so it does when
our key of AES-GCM is spent (R85).

A bad record fails reads with EBADMSG, EMSGSIZE or EINVAL. The kernel sends no alert.
"""

from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy
from cutthrough.net cimport linux
from cutthrough.net.linux cimport EAGAIN, ECONNRESET, EINVAL, ENOMEM, MSG_NOSIGNAL, errno
from cutthrough.net.sysio cimport CAN_READ, CAN_WRITE, take_kernel_error
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.keys cimport FIRST_CHACHA, Half, Keys
from cutthrough.net.tls.records cimport (
    APPLICATION_DATA, BAD_RECORD_MAC, CLOSE_NOTIFY, INTERNAL_ERROR, MOST_OVERHEAD, RECORD,
    RECORD_OVERFLOW, UNEXPECTED_MESSAGE, WARNING, is_spent, take_message)
from cutthrough.net.tls.stream cimport fail, keep_plain, obey
from cutthrough.net.tls.ulp cimport (
    AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, DOUBTED, EXACT, LAYER, LONGEST_INFO, NEVER,
    RECEIVES, SENDS, has_buffer, has_sent, sys_add_layer, sys_get_keys, sys_receive, sys_send_alert,
    sys_set_keys, unparsed)
from cutthrough.net.tls.wire cimport MOST_FRUITLESS, Tls, errno_of_end, note_failed_send, tls_of
from cutthrough.net.transport cimport UNFINISHED, Socket

cdef extern from "<errno.h>" nogil:
    int EBADMSG, EIO, EMSGSIZE

cdef enum:
    SHORT = 64              # bytes: a shorter buffer could not take a whole alert
    LOOKS = 64              # 2^14 records at most, of 2^24

# By Keys.cipher
cdef uint16_t[3] NUMBERS = [AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305]
# Bytes of version, cipher, IV, key, salt, and the number of the next record
cdef unsigned int[2] SIZE_OF_INFO = [40, 56]


# --- keys


cdef bint give_receiving(Socket *s, Tls *t) noexcept nogil:
    if t.plain != NULL or t.error:
        return False
    if t.kernel & RECEIVES:
        return True
    if not may_give(t) or t.closed or t.records.head_n or t.records.skips:
        return False
    if t.held != NULL:
        t.kernel |= EXACT
        return False
    t.records.renewed = False
    return give(s, t, False)


cdef bint give_sending(Socket *s, Tls *t) noexcept nogil:
    if t.kernel & SENDS:
        check_key(s, t)
        return t.error == 0
    # The kernel's records have up to 16 KiB, whatever was negotiated (RFC 6066 section 4)
    if not may_give(t) or t.out != NULL or t.begun or t.waits or t.ends or (
            t.records.update_due or t.records.keys.most != RECORD or not has_buffer(s.fd)):
        return False
    return give(s, t, True)


cdef bint may_give(const Tls *t) noexcept nogil:
    return not t.kernel & NEVER and t.ssl == NULL and t.records != NULL and not (
        t.error or t.send_error or t.notified)


cdef bint give(Socket *s, Tls *t, bint sends) noexcept nogil:
    cdef unsigned char info[LONGEST_INFO]
    cdef size_t n
    cdef bint is_accepted = t.kernel & LAYER or sys_add_layer(s.fd) == 0
    if is_accepted:
        t.kernel |= LAYER
        n = describe(&t.records.keys, sends, info)
        is_accepted = n != 0 and sys_set_keys(s.fd, sends, info, n) == 0
        openssl.OPENSSL_cleanse(info, sizeof(info))
    # Refused: no module, or no such cipher; or the peer has ended its stream
    t.kernel |= NEVER if not is_accepted else SENDS if sends else RECEIVES
    return is_accepted


cdef size_t describe(const Keys *k, bint sends, unsigned char *out) noexcept nogil:
    """A struct tls12_crypto_info_…: version, cipher, IV, key, salt, number of the next record.
    Returns its size; 0: failed."""
    cdef const Half *half = &k.tx if sends else &k.rx
    cdef uint16_t head[2]
    cdef size_t n = sizeof(head)
    cdef int i
    head[0], head[1] = 0x0304 if k.is_13 else 0x0303, NUMBERS[k.cipher]
    memcpy(out, head, n)
    if k.cipher == FIRST_CHACHA:
        memcpy(out + n, half.iv, 12)
        memcpy(out + n + 12, half.key, k.key_n)
        n += 12 + k.key_n
    else:
        memcpy(out + n, half.iv + 4, 8)
        # The kernel counts on from this part of a nonce of TLS 1.2: from a random one, as we did
        if k.explicit_n and sends and openssl.RAND_bytes(out + n, 8) != 1:
            return 0
        memcpy(out + n + 8, half.key, k.key_n)
        memcpy(out + n + 8 + k.key_n, half.iv, 4)
        n += 8 + k.key_n + 4
    for i in range(8):
        out[n + i] = <unsigned char>(half.seq >> (56 - 8 * i))
    return n + 8


# --- receiving


cdef ssize_t receive_from_kernel(Socket *s, Tls *t, void *buf, size_t n) noexcept nogil:
    cdef unsigned char room[SHORT]
    cdef unsigned char *data = <unsigned char *>buf if n >= SHORT else &room[0]
    cdef size_t fruitless = 0
    cdef int kind
    cdef ssize_t r
    while True:
        r = sys_receive(s.fd, data, max(n, <size_t>SHORT), &kind)
        if r < 0:
            return fault(s, t, <int>-r)
        t.kernel &= ~DOUBTED
        if r == 0 and kind in (0, APPLICATION_DATA):
            return take_end(s, t)
        if kind == APPLICATION_DATA and not (t.records.head_n or t.records.skips):
            break
        obey(s, t, take_message(t.records, kind, data, r))
        fruitless += r + MOST_OVERHEAD
        if fruitless > MOST_FRUITLESS and not t.error:
            t.error = ECONNRESET
        if t.error or t.closed:
            return -t.error
    # Not known to be dry: recvmsg ends before a record of another kind
    if data == buf:
        return r
    n = min(n, <size_t>r)
    memcpy(buf, data, n)
    if <size_t>r > n and not keep_plain(t, data + n, r - n):
        t.error = ENOMEM
    return n


cdef ssize_t take_end(Socket *s, Tls *t) noexcept nogil:
    """FIN, and no close_notify before it: as in `refill` of `stream`."""
    t.peer_ended = True
    t.error = errno_of_end(t)
    if t.error:
        pass
    elif unparsed(s.fd):
        t.error = ECONNRESET
    elif t.connects:
        t.error = UNFINISHED
    else:
        t.closed = True
    return -t.error


cdef ssize_t note_unspliced(Socket *s, ssize_t failed) noexcept nogil:
    cdef Tls *t = tls_of(s)
    if t.error:                 # which the kernel reports once
        return -t.error
    if failed == -EAGAIN:
        return failed
    if failed == -EINVAL:       # a record that is no data: the next read has it
        t.kernel |= DOUBTED
        return failed
    return fault(s, t, <int>-failed)


cdef ssize_t fault(Socket *s, Tls *t, int error) noexcept nogil:
    if error == EAGAIN and not t.kernel & DOUBTED:
        s.ready &= ~CAN_READ
        return -EAGAIN
    if error in (EAGAIN, EBADMSG, EINVAL, EIO, EMSGSIZE):
        take_kernel_error(s.fd)     # the kernel sends nothing before this error is taken
        fail(s, t, BAD_RECORD_MAC if error == EBADMSG else RECORD_OVERFLOW if error == EMSGSIZE
             else UNEXPECTED_MESSAGE)
    else:
        t.error = error
    return -t.error


# --- sending


cdef void check_key(Socket *s, Tls *t) noexcept nogil:
    """The number of its next record is the kernel's alone. Between two looks are LOOKS calls, each
    with a turn of a pump at most: 1 MiB, or 256 records of a page."""
    cdef unsigned char info[LONGEST_INFO]
    t.looks += 1
    if t.looks % LOOKS or not t.records.keys.is_13 or t.records.keys.cipher == FIRST_CHACHA or (
            t.error):
        return
    if sys_get_keys(s.fd, info, SIZE_OF_INFO[t.records.keys.cipher]) == 0 and (
            is_spent(read_number(info + SIZE_OF_INFO[t.records.keys.cipher] - 8))):
        fail(s, t, INTERNAL_ERROR)
        linux.shutdown(s.fd, linux.SHUT_WR)     # for what is spliced
    openssl.OPENSSL_cleanse(info, sizeof(info))


cdef uint64_t read_number(const unsigned char *data) noexcept nogil:
    cdef uint64_t n = 0
    cdef int i
    for i in range(8):
        n = n << 8 | data[i]
    return n


cdef ssize_t send_to_kernel(Socket *s, Tls *t, const char *data, size_t n) noexcept nogil:
    cdef ssize_t r
    check_key(s, t)
    if t.error:
        return -t.error
    r = linux.send(s.fd, data, n, MSG_NOSIGNAL)
    if r < 0 and errno != EAGAIN:
        note_failed_send(s, t)
        return -t.send_error
    if r < <ssize_t>n:
        s.ready &= ~CAN_WRITE
    return max(r, 0)


cdef bint end_by_kernel(Socket *s, Tls *t) noexcept nogil:
    if t.notified or t.error or t.send_error:
        return True
    if not has_sent(s.fd) or sys_send_alert(s.fd, WARNING, CLOSE_NOTIFY) == 0:
        s.ready &= ~CAN_WRITE
        return False
    t.notified = True
    return True
