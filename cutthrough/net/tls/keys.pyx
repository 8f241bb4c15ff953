# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Keys of a connection behind its handshake: taken from libssl, derived, renewed; and what else
its handshake has agreed.

libssl hands out no key. It reports the traffic secrets of TLS 1.3 for key logs, and gives the
master secret of TLS 1.2; keys and IVs follow from them. AWS-LC tells the sequence numbers. OpenSSL
does not: the number of a half is counted from the moment it reports the half's secret, because it
sets the key in the same call; in TLS 1.2 from the change_cipher_spec on.
"""

from libc.stdint cimport uint8_t, uint16_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy, strlen
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.openssl cimport (
    EVP_CIPHER, EVP_MAC, EVP_MAC_CTX, EVP_MD, OSSL_PARAM, SSL, SSL_CIPHER, SSL_SESSION)
from cutthrough.net.transport cimport Agreed

cdef enum:
    CIPHERS = 3
    LONGEST_HASH = 48
    RECORD = 16384          # plain bytes of a record, at most (RFC 8446 section 5.1)
    # A line of a key log: a label, the client's random bytes, the secret
    LABEL = 24
    BEFORE_SECRET = LABEL + 64 + 1

cdef EVP_CIPHER *ciphers[CIPHERS]
cdef int numbers[CIPHERS]           # libcrypto's; -1: not available
cdef EVP_MAC_CTX *macs[2]           # HMAC with SHA-256, SHA-384
cdef Keys *noted = NULL


cdef const EVP_CIPHER *cipher_of(const Keys *k) noexcept nogil:
    return ciphers[k.cipher]


cdef void note_secrets(Keys *k) noexcept nogil:
    global noted
    noted = k


cdef void on_secret(const SSL *ssl, const char *line) noexcept nogil:
    cdef Keys *k = noted
    cdef bint of_client = memcmp(line, b"CLIENT_TRAFFIC_SECRET_0 ", LABEL) == 0
    cdef const char *hexed = line + BEFORE_SECRET
    cdef Half *half
    cdef int n = 0
    if k == NULL or not of_client and memcmp(line, b"SERVER_TRAFFIC_SECRET_0 ", LABEL) != 0:
        return
    half = &k.tx if of_client == k.connects else &k.rx
    while n < LONGEST_HASH and hexed[2 * n] != 0 and hexed[2 * n + 1] != 0:
        half.secret[n] = <unsigned char>(
            value_of(hexed[2 * n]) << 4 | value_of(hexed[2 * n + 1]))
        n += 1
    k.hash_n = <uint8_t>n
    half.seq = 0
    k.known |= 1 if half == &k.tx else 2


cdef inline int value_of(char digit) noexcept nogil:
    return digit - 48 if digit <= 57 else (digit | 32) - 87


cdef bint take_keys(Keys *k, SSL *ssl) noexcept nogil:
    cdef const SSL_CIPHER *cipher = openssl.SSL_get_current_cipher(ssl)
    cdef const EVP_MD *hash = openssl.SSL_CIPHER_get_handshake_digest(cipher)
    cdef const SSL_SESSION *session = openssl.SSL_get_session(ssl)
    cdef int version = openssl.SSL_version(ssl)
    cdef int hash_n = 0 if hash == NULL else openssl.EVP_MD_get_size(hash)
    cdef int shortens
    k.cipher = 0
    while k.cipher < CIPHERS and numbers[k.cipher] != openssl.SSL_CIPHER_get_cipher_nid(cipher):
        k.cipher += 1
    if k.cipher == CIPHERS or session == NULL or hash_n not in (32, LONGEST_HASH):
        return False
    k.key_n = <uint8_t>openssl.EVP_CIPHER_get_key_length(ciphers[k.cipher])
    # RFC 6066 section 4: 1 stands for 512 bytes, 4 for 4096
    shortens = openssl.SSL_SESSION_get_max_fragment_length(session)
    k.most = <uint16_t>(256 << shortens if 1 <= shortens <= 4 else RECORD)
    k.is_13 = version == openssl.TLS1_3_VERSION
    if openssl.LIBSSL_COUNTS_RECORDS:
        k.rx.seq, k.tx.seq = (
            openssl.SSL_get_read_sequence(ssl), openssl.SSL_get_write_sequence(ssl))
    if k.is_13:
        return (k.known == 3 and k.hash_n == hash_n and derive_key(k, &k.rx)
                and derive_key(k, &k.tx))
    k.hash_n = <uint8_t>hash_n
    return version == openssl.TLS1_2_VERSION and derive_block(k, ssl, session)


# --- the key schedules


# Octets of the caller
cdef struct Octets:
    const unsigned char *data
    size_t n


# Of `a`, and `b` behind it
cdef bint hmac(int hash_n, Octets key, Octets a, Octets b, unsigned char *out) noexcept nogil:
    cdef EVP_MAC_CTX *mac = macs[hash_n == LONGEST_HASH]
    cdef size_t out_n = 0
    return (openssl.EVP_MAC_init(mac, key.data, key.n, NULL) == 1
            and openssl.EVP_MAC_update(mac, a.data, a.n) == 1
            and openssl.EVP_MAC_update(mac, b.data, b.n) == 1
            and openssl.EVP_MAC_final(mac, out, &out_n, LONGEST_HASH) == 1
            and <int>out_n == hash_n)


cdef bint expand(const Keys *k, const Half *half, const unsigned char *label, size_t label_n,
                 unsigned char *out, size_t n) noexcept nogil:
    """HKDF-Expand-Label with no context (RFC 8446 section 7.1). One block of HKDF (RFC 5869
    section 2.3) is enough for all that is derived."""
    cdef unsigned char info[32]
    cdef unsigned char block[LONGEST_HASH]
    cdef bint done
    info[0], info[1], info[2] = 0, <unsigned char>n, <unsigned char>(6 + label_n)
    memcpy(info + 3, b"tls13 ", 6)
    memcpy(info + 9, label, label_n)
    info[9 + label_n] = 0
    info[10 + label_n] = 1              # HKDF's number of the block
    done = hmac(k.hash_n, Octets(&half.secret[0], k.hash_n), Octets(&info[0], 11 + label_n),
                Octets(NULL, 0), block)
    if done:
        memcpy(out, block, n)
    openssl.OPENSSL_cleanse(block, sizeof(block))
    return done


cdef bint derive_key(const Keys *k, Half *half) noexcept nogil:
    return (expand(k, half, b"key", 3, half.key, k.key_n)
            and expand(k, half, b"iv", 2, half.iv, sizeof(half.iv)))


cdef bint renew_key(const Keys *k, Half *half) noexcept nogil:
    if not expand(k, half, b"traffic upd", 11, half.secret, k.hash_n):
        return False
    half.seq = 0
    return derive_key(k, half)


cdef bint derive_block(Keys *k, SSL *ssl, const SSL_SESSION *session) noexcept nogil:
    """TLS 1.2 (RFC 5246 sections 5 and 6.3)."""
    cdef unsigned char master[48]
    cdef unsigned char seed[13 + 32 + 32]
    cdef Octets key = Octets(&master[0], sizeof(master))
    cdef Octets labelled = Octets(&seed[0], sizeof(seed))
    cdef unsigned char a[LONGEST_HASH]
    cdef unsigned char block[2 * 32 + 2 * 12 + LONGEST_HASH]
    cdef Half *client = &k.tx if k.connects else &k.rx
    cdef Half *server = &k.rx if k.connects else &k.tx
    cdef int filled = 0
    cdef int iv_n
    cdef bint good = openssl.SSL_SESSION_get_master_key(
        session, master, sizeof(master)) == sizeof(master)
    k.explicit_n = 0 if k.cipher == FIRST_CHACHA else 8
    iv_n = 12 - k.explicit_n
    memcpy(seed, b"key expansion", 13)
    good = (good and openssl.SSL_get_server_random(ssl, seed + 13, 32) == 32
            and openssl.SSL_get_client_random(ssl, seed + 45, 32) == 32
            and hmac(k.hash_n, key, labelled, Octets(NULL, 0), a))
    while good and filled < 2 * (k.key_n + iv_n):
        good = (hmac(k.hash_n, key, Octets(&a[0], k.hash_n), labelled, block + filled)
                and hmac(k.hash_n, key, Octets(&a[0], k.hash_n), Octets(NULL, 0), a))
        filled += k.hash_n
    if good:
        memcpy(client.key, block, k.key_n)
        memcpy(server.key, block + k.key_n, k.key_n)
        memcpy(client.iv, block + 2 * k.key_n, iv_n)
        memcpy(server.iv, block + 2 * k.key_n + iv_n, iv_n)
        good = k.explicit_n == 0 or openssl.RAND_bytes(k.tx.iv + iv_n, k.explicit_n) == 1
    openssl.OPENSSL_cleanse(master, sizeof(master))
    openssl.OPENSSL_cleanse(a, sizeof(a))
    openssl.OPENSSL_cleanse(block, sizeof(block))
    return good


cdef int prepare() except -1:
    cdef EVP_MAC *mac = openssl.EVP_MAC_fetch(NULL, b"HMAC", NULL)
    cdef OSSL_PARAM params[2]
    for i, name in enumerate((b"AES-128-GCM", b"AES-256-GCM", b"ChaCha20-Poly1305")):
        ciphers[i] = openssl.EVP_CIPHER_fetch(NULL, name, NULL)
        numbers[i] = -1 if ciphers[i] == NULL else openssl.EVP_CIPHER_get_nid(ciphers[i])
    params[1] = openssl.OSSL_PARAM_construct_end()
    for i, name in enumerate((b"SHA256", b"SHA384")):
        params[0] = openssl.OSSL_PARAM_construct_utf8_string(b"digest", name, 0)
        macs[i] = NULL if mac == NULL else openssl.EVP_MAC_CTX_new(mac)
        if macs[i] == NULL or not openssl.EVP_MAC_CTX_set_params(macs[i], params):
            raise ImportError("libcrypto has no HMAC")
    openssl.ERR_clear_error()
    return 0


prepare()


cdef Agreed *copy_agreed(SSL *ssl) noexcept nogil:
    cdef Agreed agreed
    cdef Agreed *out
    cdef char *text
    cdef size_t name_n
    describe_ssl(ssl, &agreed)
    name_n = 0 if agreed.name == NULL else strlen(agreed.name) + 1
    out = <Agreed *>malloc(sizeof(Agreed) + name_n + agreed.alpn_len)
    if out == NULL:
        return NULL
    out[0] = agreed
    text = <char *>(out + 1)
    if name_n:
        memcpy(text, agreed.name, name_n)
        out.name = text
    if agreed.alpn_len:
        memcpy(text + name_n, agreed.alpn, agreed.alpn_len)
        out.alpn = text + name_n
    return out


cdef void describe_ssl(SSL *ssl, Agreed *out) noexcept nogil:
    cdef const SSL_CIPHER *cipher = openssl.SSL_get_current_cipher(ssl)
    out.version = openssl.SSL_version(ssl)
    out.cipher = NULL
    if cipher != NULL:
        out.cipher = openssl.SSL_CIPHER_standard_name(cipher)
    out.name = openssl.SSL_get_servername(ssl, openssl.TLSEXT_NAMETYPE_host_name)
    openssl.SSL_get0_alpn_selected(ssl, <const unsigned char **>&out.alpn, &out.alpn_len)
    out.resumed = openssl.SSL_session_reused(ssl)
