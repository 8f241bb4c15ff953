"""Keys of a connection behind its handshake: taken from libssl, derived, renewed."""

from libc.stdint cimport uint8_t, uint16_t, uint64_t
from cutthrough.net.tls.openssl cimport EVP_CIPHER, SSL
from cutthrough.net.transport cimport Agreed

# One direction.
cdef struct Half:
    uint64_t seq                # number of the next record under this key
    unsigned char key[32]
    unsigned char iv[12]
    unsigned char secret[48]    # of TLS 1.3: this key and the next are derived from it

cdef struct Keys:
    Half rx
    Half tx
    uint16_t most               # plain bytes of a record of ours, at most
    uint8_t cipher              # see cipher_of
    uint8_t key_n, hash_n       # bytes of a key; of the hash of the key schedule
    uint8_t explicit_n          # bytes of the nonce in each record: 8 or 0
    uint8_t is_13
    uint8_t connects            # our side is the client
    uint8_t known               # secrets of TLS 1.3 that libssl has reported: 1 ours, 2 the peer's

cdef enum:
    FIRST_CHACHA = 2            # below it: AES-GCM

# Before each call of libssl for a connection: its secrets are noted here. NULL: nowhere.
cdef void note_secrets(Keys *keys) noexcept nogil
# libssl calls it with each secret (SSL_CTX_set_keylog_callback).
cdef void on_secret(const SSL *ssl, const char *line) noexcept nogil
# The handshake is done and no record is under way: fills in the rest. False: libssl has
# negotiated something that is unknown here.
cdef bint take_keys(Keys *keys, SSL *ssl) noexcept nogil
# TLS 1.3: key and IV from the secret (RFC 8446 section 7.3). False: failed.
cdef bint derive_key(const Keys *keys, Half *half) noexcept nogil
# TLS 1.3: the next secret, key and IV (section 7.2). False: failed.
cdef bint renew_key(const Keys *keys, Half *half) noexcept nogil
cdef const EVP_CIPHER *cipher_of(const Keys *keys) noexcept nogil
# The result of the handshake; its texts are libssl's.
cdef void describe_ssl(SSL *ssl, Agreed *out) noexcept nogil
# The same with its texts behind it, for free(3). NULL: no memory.
cdef Agreed *copy_agreed(SSL *ssl) noexcept nogil
