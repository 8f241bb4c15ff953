"""System calls of kTLS, the kernel's protocol on top of a TCP socket (its "ULP")."""

cdef enum:
    # Of Tls.kernel
    LAYER = 1               # the protocol is on top of the socket
    RECEIVES = 2            # the kernel has the keys of this direction
    SENDS = 4
    EXACT = 8               # our reads end where a record ends, so that the kernel can take the next
    DOUBTED = 16            # a splice has met a record that is no data, or a bad header
    NEVER = 32              # the kernel has refused the connection

cdef enum:
    # Numbers of tls_crypto_info
    AES_128_GCM = 51
    AES_256_GCM = 52
    CHACHA20_POLY1305 = 54
    LONGEST_INFO = 56       # struct tls12_crypto_info_aes_gcm_256 and …_chacha20_poly1305

# 0, or -errno; ENOENT: the kernel has no kTLS, or has not loaded its module.
cdef int sys_add_layer(int fd) noexcept nogil
# Gives keys to the kernel. 0, or -errno.
cdef int sys_set_keys(int fd, bint sends, const void *info, size_t n) noexcept nogil
# Reads those of sending, with the number of the next record. 0, or -errno.
cdef int sys_get_keys(int fd, void *info, unsigned int n) noexcept nogil
# Returns bytes of one kind, or -errno. *kind: of their records; 0: unknown, at an end.
cdef ssize_t sys_receive(int fd, void *buf, size_t n, int *kind) noexcept nogil
# Sends an alert behind all bytes. 0: the kernel has not taken it; 2; or -errno.
cdef ssize_t sys_send_alert(int fd, int level, int alert) noexcept nogil
# Has the kernel no record that waits for room in the socket? If it may have one, EPOLLOUT comes.
cdef bint has_sent(int fd) noexcept nogil
# Has the socket room for the rest of a record whenever it reports room?
cdef bint has_buffer(int fd) noexcept nogil
# Bytes of the socket that no whole record has. 0, too, if it has none.
cdef int unparsed(int fd) noexcept nogil
