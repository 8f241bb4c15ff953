"""Declarations of libssl and libcrypto (OpenSSL 3.0 and later, AWS-LC), as far as `tls` uses them."""

from libc.stdint cimport uint32_t, uint64_t

cdef extern from "libssl.h" nogil:
    ctypedef struct OSSL_LIB_CTX:
        pass

cdef extern from "libssl.h" nogil:
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct SSL_SESSION:
        pass
    ctypedef struct SSL_CIPHER:
        pass
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    ctypedef struct X509:
        pass
    ctypedef struct X509_CRL:
        pass
    ctypedef struct X509_NAME:
        pass
    ctypedef struct X509_STORE:
        pass
    ctypedef struct X509_EXTENSION:
        pass
    ctypedef struct X509V3_CTX:
        pass
    ctypedef struct EVP_PKEY:
        pass
    ctypedef struct EVP_CIPHER:
        pass
    ctypedef struct EVP_CIPHER_CTX:
        pass
    ctypedef struct EVP_MAC:
        pass
    ctypedef struct EVP_MAC_CTX:
        pass
    ctypedef struct EVP_MD:
        pass
    ctypedef struct ASN1_STRING:
        pass
    ctypedef struct ASN1_TIME:
        pass
    ctypedef struct ASN1_INTEGER:
        pass
    ctypedef struct ASN1_OCTET_STRING:
        pass
    ctypedef struct EVP_MD:
        pass
    ctypedef struct GENERAL_NAME:
        int type
    ctypedef struct OSSL_PARAM:
        pass
    ctypedef struct X509_VERIFY_PARAM:
        pass
    ctypedef struct CRYPTO_EX_DATA:
        pass

    # contexts
    const SSL_METHOD *TLS_server_method()
    const SSL_METHOD *TLS_client_method()
    SSL_CTX *SSL_CTX_new_ex(OSSL_LIB_CTX *library, const char *properties,
                            const SSL_METHOD *method)
    void SSL_CTX_free(SSL_CTX *ctx)
    int SSL_CTX_up_ref(SSL_CTX *ctx)
    uint64_t SSL_CTX_set_options(SSL_CTX *ctx, uint64_t options)
    uint64_t SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_COMPRESSION, SSL_OP_CIPHER_SERVER_PREFERENCE
    uint64_t SSL_OP_PRIORITIZE_CHACHA, SSL_OP_IGNORE_UNEXPECTED_EOF, SSL_OP_NO_TICKET
    uint64_t SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
    uint64_t SSL_OP_ENABLE_KTLS, SSL_OP_NO_ENCRYPT_THEN_MAC
    long SSL_CTX_set_mode(SSL_CTX *ctx, long mode)
    long SSL_MODE_NO_AUTO_CHAIN, SSL_MODE_RELEASE_BUFFERS, SSL_MODE_ENABLE_PARTIAL_WRITE
    long SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
    int SSL_CTX_set_min_proto_version(SSL_CTX *ctx, int version)
    int TLS1_2_VERSION, TLS1_3_VERSION
    int SSL_CTX_set_cipher_list(SSL_CTX *ctx, const char *names)
    int SSL_CTX_set_ciphersuites(SSL_CTX *ctx, const char *names)
    int SSL_CTX_set1_groups_list(SSL_CTX *ctx, const char *names)
    long SSL_CTX_set_session_cache_mode(SSL_CTX *ctx, long mode)
    long SSL_SESS_CACHE_OFF, SSL_SESS_CACHE_CLIENT, SSL_SESS_CACHE_NO_INTERNAL
    long SSL_CTX_set_timeout(SSL_CTX *ctx, long seconds)
    int SSL_CTX_set_num_tickets(SSL_CTX *ctx, size_t n)
    int SSL_CTX_set_session_id_context(
        SSL_CTX *ctx, const unsigned char *context, unsigned int n)
    int SSL_CTX_set_max_early_data(SSL_CTX *ctx, unsigned int n)
    void SSL_CTX_set_verify(SSL_CTX *ctx, int mode, void *callback)
    int SSL_CTX_get_verify_mode(const SSL_CTX *ctx)
    void SSL_set_verify(SSL *ssl, int mode, void *callback)
    int SSL_get_verify_mode(const SSL *ssl)
    int SSL_set_num_tickets(SSL *ssl, size_t n)
    int SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    X509_STORE *SSL_CTX_get_cert_store(const SSL_CTX *ctx)
    int SSL_CTX_set_default_verify_paths(SSL_CTX *ctx)
    int SSL_CTX_load_verify_locations(
        SSL_CTX *ctx, const char *file, const char *directory)
    const char *X509_get_default_cert_file()
    int SSL_CTX_add_client_CA(SSL_CTX *ctx, X509 *certificate)
    int SSL_CTX_use_certificate(SSL_CTX *ctx, X509 *certificate)
    int SSL_CTX_use_PrivateKey(SSL_CTX *ctx, EVP_PKEY *key)
    int SSL_CTX_check_private_key(const SSL_CTX *ctx)
    long SSL_CTX_add1_chain_cert(SSL_CTX *ctx, X509 *certificate)
    long SSL_CTX_add_extra_chain_cert(SSL_CTX *ctx, X509 *certificate)
    int SSL_CTX_set_alpn_protos(SSL_CTX *ctx, const unsigned char *wire, unsigned int n)

    ctypedef int (*alpn_callback)(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                                  const unsigned char *offered, unsigned int n, void *arg
                                  ) noexcept
    void SSL_CTX_set_alpn_select_cb(SSL_CTX *ctx, alpn_callback callback, void *arg)
    int SSL_select_next_proto(
        unsigned char **out, unsigned char *out_len, const unsigned char *server,
        unsigned int server_len, const unsigned char *client, unsigned int client_len)
    int OPENSSL_NPN_NEGOTIATED
    ctypedef int (*name_callback)(SSL *ssl, int *alert, void *arg) noexcept
    long SSL_CTX_set_tlsext_servername_callback(SSL_CTX *ctx, name_callback callback)
    long SSL_CTX_set_tlsext_servername_arg(SSL_CTX *ctx, void *arg)
    ctypedef int (*status_callback)(SSL *ssl, void *arg) noexcept
    long SSL_CTX_set_tlsext_status_cb(SSL_CTX *ctx, status_callback callback)
    long SSL_CTX_set_tlsext_status_arg(SSL_CTX *ctx, void *arg)
    long SSL_set_tlsext_status_ocsp_resp(SSL *ssl, void *response, long n)
    ctypedef int (*ticket_callback)(
        SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
        EVP_MAC_CTX *mac, int encrypts) noexcept
    int SSL_CTX_set_tlsext_ticket_key_evp_cb(SSL_CTX *ctx, ticket_callback callback)
    int SSL_TLSEXT_ERR_OK, SSL_TLSEXT_ERR_NOACK, SSL_TLSEXT_ERR_ALERT_FATAL
    int TLSEXT_NAMETYPE_host_name

    ctypedef int (*session_callback)(SSL *ssl, SSL_SESSION *session) noexcept
    void SSL_CTX_sess_set_new_cb(SSL_CTX *ctx, session_callback callback)

    # keys
    ctypedef void (*keylog_callback)(const SSL *ssl, const char *line) noexcept nogil
    void SSL_CTX_set_keylog_callback(SSL_CTX *ctx, keylog_callback callback)
    SSL_SESSION *SSL_get_session(const SSL *ssl)
    size_t SSL_SESSION_get_master_key(const SSL_SESSION *session, unsigned char *out, size_t n)
    size_t SSL_get_client_random(const SSL *ssl, unsigned char *out, size_t n)
    size_t SSL_get_server_random(const SSL *ssl, unsigned char *out, size_t n)
    bint LIBSSL_COUNTS_RECORDS, LIBSSL_DEFERS_TICKETS, LIBSSL_NEEDS_TICKET_KEY
    bint LIBSSL_MISSES_ALERTS, LIBSSL_CHAINS_BY_KEY
    void *LIBSSL_VERIFY             # a callback, or NULL
    int libssl_harden(SSL_CTX *ctx)
    void libssl_prefer_aes_128(SSL_CTX *ctx)
    # Of a client: no longer modulus of finite-field Diffie-Hellman than 4096 bits
    void libssl_bound_dh(SSL *ssl)
    bint libssl_renegotiates_safely(const SSL *ssl)
    void SSL_CTX_set_session_psk_dhe_timeout(SSL_CTX *ctx, uint32_t seconds)
    uint64_t SSL_get_read_sequence(const SSL *ssl)
    uint64_t SSL_get_write_sequence(const SSL *ssl)
    const EVP_MD *SSL_CIPHER_get_handshake_digest(const SSL_CIPHER *cipher)
    int SSL_CIPHER_get_cipher_nid(const SSL_CIPHER *cipher)
    int SSL_SESSION_get_max_fragment_length(const SSL_SESSION *session)

    # sessions
    long SSL_CTX_get_session_cache_mode(SSL_CTX *ctx)
    void SSL_SESSION_free(SSL_SESSION *session)
    int SSL_set_session(SSL *ssl, SSL_SESSION *session)
    void SSL_SESSION_get0_ticket(
        const SSL_SESSION *session, const unsigned char **out, size_t *n)
    int SSL_SESSION_is_resumable(const SSL_SESSION *session)
    int SSL_SESSION_get_protocol_version(const SSL_SESSION *session)
    X509 *SSL_SESSION_get0_peer(SSL_SESSION *session)

    # connections
    SSL *SSL_new(SSL_CTX *ctx)
    void SSL_free(SSL *ssl)
    void SSL_set_bio(SSL *ssl, BIO *read, BIO *write)
    void SSL_set_accept_state(SSL *ssl)
    int SSL_key_update(SSL *ssl, int kind)
    int SSL_KEY_UPDATE_NOT_REQUESTED
    int SSL_set_cipher_list(SSL *ssl, const char *names)
    int SSL_set_ciphersuites(SSL *ssl, const char *names)
    int SSL_set1_groups_list(SSL *ssl, const char *names)
    int SSL_set1_sigalgs_list(SSL *ssl, const char *names)
    long SSL_CTX_set1_client_sigalgs_list(SSL_CTX *ctx, const char *names)
    int SSL_set_max_proto_version(SSL *ssl, int version)
    uint64_t SSL_set_options(SSL *ssl, uint64_t options)
    long SSL_set_tlsext_status_type(SSL *ssl, int kind)
    int TLSEXT_STATUSTYPE_ocsp
    const SSL_CIPHER *SSL_CIPHER_find(SSL *ssl, const unsigned char *number)
    int SSL_CIPHER_get_bits(const SSL_CIPHER *cipher, int *bits)
    int SSL_CIPHER_get_auth_nid(const SSL_CIPHER *cipher)
    int SSL_CIPHER_get_kx_nid(const SSL_CIPHER *cipher)
    int SSL_use_certificate(SSL *ssl, X509 *certificate)
    int SSL_use_PrivateKey(SSL *ssl, EVP_PKEY *key)
    void SSL_set_msg_callback(
        SSL *ssl, void (*on_message)(int, int, int, const void *, size_t, SSL *,
                                     void *) noexcept nogil)
    void SSL_set_connect_state(SSL *ssl)
    int SSL_do_handshake(SSL *ssl)
    int SSL_is_init_finished(const SSL *ssl)
    int SSL_session_reused(const SSL *ssl)
    int SSL_read(SSL *ssl, void *buf, int n)
    int SSL_write(SSL *ssl, const void *buf, int n)
    int SSL_shutdown(SSL *ssl)
    int SSL_get_shutdown(const SSL *ssl)
    void SSL_set_shutdown(SSL *ssl, int mode)
    int SSL_SENT_SHUTDOWN, SSL_RECEIVED_SHUTDOWN
    void SSL_set_read_ahead(SSL *ssl, int on)
    const char *SSL_rstate_string(const SSL *ssl)
    int SSL3_RT_HEADER
    int SSL_has_pending(const SSL *ssl)
    int SSL_get_error(const SSL *ssl, int result)
    int SSL_ERROR_NONE, SSL_ERROR_SSL, SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE
    int SSL_ERROR_SYSCALL, SSL_ERROR_ZERO_RETURN
    const char *SSL_get_servername(const SSL *ssl, int kind)
    long SSL_set_tlsext_host_name(SSL *ssl, const char *name)
    SSL_CTX *SSL_set_SSL_CTX(SSL *ssl, SSL_CTX *ctx)
    SSL_CTX *SSL_get_SSL_CTX(const SSL *ssl)
    X509 *SSL_get0_peer_certificate(const SSL *ssl)
    X509 *SSL_get_certificate(const SSL *ssl)
    const char *SSL_alert_desc_string_long(int value)
    const char *SSL_get_version(const SSL *ssl)
    const SSL_CIPHER *SSL_get_current_cipher(const SSL *ssl)
    const char *SSL_CIPHER_get_name(const SSL_CIPHER *cipher)
    const char *SSL_CIPHER_standard_name(const SSL_CIPHER *cipher)
    int SSL_version(const SSL *ssl)
    void SSL_get0_alpn_selected(const SSL *ssl, const unsigned char **data, unsigned int *n)
    int SSL_set1_host(SSL *ssl, const char *name)
    void SSL_set_hostflags(SSL *ssl, unsigned int flags)
    X509_VERIFY_PARAM *SSL_get0_param(SSL *ssl)
    long SSL_get_verify_result(const SSL *ssl)

    # reasons of SSL_ERROR_SSL
    int SSL_AD_REASON_OFFSET
    int SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST
    int SSL_R_EXCESSIVE_MESSAGE_SIZE
    int SSL_R_NO_SHARED_CIPHER, SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_NO_SUITABLE_KEY_SHARE
    int SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, SSL_R_VERSION_TOO_LOW
    int SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS, SSL_R_NO_APPLICATION_PROTOCOL
    int SSL_R_UNKNOWN_PROTOCOL, SSL_R_NO_PROTOCOLS_AVAILABLE
    int SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, SSL_R_CERTIFICATE_VERIFY_FAILED

cdef extern from "libssl.h" nogil:
    BIO_METHOD *BIO_meth_new(int kind, const char *name)
    int BIO_get_new_index()
    int BIO_TYPE_SOURCE_SINK
    ctypedef int (*bio_write)(BIO *bio, const char *data, int n) noexcept
    ctypedef int (*bio_read)(BIO *bio, char *data, int n) noexcept
    ctypedef long (*bio_ctrl)(BIO *bio, int command, long number, void *pointer) noexcept
    int BIO_meth_set_write(BIO_METHOD *method, bio_write call)
    int BIO_meth_set_read(BIO_METHOD *method, bio_read call)
    int BIO_meth_set_ctrl(BIO_METHOD *method, bio_ctrl call)
    BIO *BIO_new(const BIO_METHOD *method)
    BIO *BIO_new_mem_buf(const void *data, int n)
    int BIO_free(BIO *bio)
    int BIO_up_ref(BIO *bio)
    void BIO_set_init(BIO *bio, int on)
    void BIO_set_retry_read(BIO *bio)
    void BIO_set_retry_write(BIO *bio)
    void BIO_clear_retry_flags(BIO *bio)
    int BIO_CTRL_FLUSH, BIO_CTRL_EOF

cdef extern from "libssl.h" nogil:
    void ERR_clear_error()
    unsigned long ERR_peek_error()
    unsigned long ERR_get_error()
    void ERR_put_error(int library, int call, int reason, const char *file, int line)
    int ERR_GET_REASON(unsigned long error)
    int ERR_GET_LIB(unsigned long error)
    int ERR_LIB_SSL
    void ERR_error_string_n(unsigned long error, char *text, size_t n)
    const char *ERR_reason_error_string(unsigned long error)

cdef extern from "libssl.h" nogil:
    ctypedef int (*password_callback)(char *out, int n, int writes, void *arg) noexcept
    X509 *PEM_read_bio_X509(BIO *bio, X509 **out, password_callback password, void *arg)
    X509_CRL *PEM_read_bio_X509_CRL(
        BIO *bio, X509_CRL **out, password_callback password, void *arg)
    EVP_PKEY *PEM_read_bio_PrivateKey(
        BIO *bio, EVP_PKEY **out, password_callback password, void *arg)
    int PEM_R_NO_START_LINE

cdef extern from "libssl.h" nogil:
    void X509_free(X509 *certificate)
    void X509_CRL_free(X509_CRL *crl)
    void EVP_PKEY_free(EVP_PKEY *key)
    int EVP_PKEY_get_base_id(const EVP_PKEY *key)
    EVP_PKEY *X509_get0_pubkey(const X509 *certificate)
    const ASN1_TIME *X509_get0_notAfter(const X509 *certificate)
    const ASN1_TIME *X509_get0_notBefore(const X509 *certificate)
    int X509_cmp_current_time(const ASN1_TIME *time)
    int X509_check_private_key(const X509 *certificate, const EVP_PKEY *key)
    X509_NAME *X509_get_subject_name(const X509 *certificate)
    int X509_NAME_get_text_by_NID(X509_NAME *name, int nid, char *out, int n)
    int NID_commonName, NID_subject_alt_name
    int NID_auth_rsa, NID_auth_ecdsa, NID_auth_any
    int NID_kx_ecdhe, NID_kx_dhe, NID_kx_rsa, NID_kx_any
    void *X509_get_ext_d2i(const X509 *certificate, int nid, int *critical, int *index)
    int OPENSSL_sk_num(const void *stack)
    void *OPENSSL_sk_value(const void *stack, int i)
    void GENERAL_NAMES_free(void *names)
    void *GENERAL_NAME_get0_value(const GENERAL_NAME *name, int *kind)
    int GEN_DNS, GEN_URI, GEN_EMAIL
    int X509_check_ca(X509 *certificate)
    int X509_self_signed(X509 *certificate, int verify)
    int X509_up_ref(X509 *certificate)
    int EVP_PKEY_up_ref(EVP_PKEY *key)
    int EVP_PKEY_EC, EVP_PKEY_RSA
    const unsigned char *ASN1_STRING_get0_data(const ASN1_STRING *text)
    int ASN1_STRING_length(const ASN1_STRING *text)
    int X509_STORE_add_cert(X509_STORE *store, X509 *certificate)
    int X509_STORE_add_crl(X509_STORE *store, X509_CRL *crl)
    int X509_STORE_set_flags(X509_STORE *store, unsigned long flags)
    unsigned long X509_V_FLAG_CRL_CHECK, X509_V_FLAG_CRL_CHECK_ALL
    unsigned long X509_V_FLAG_PARTIAL_CHAIN
    const char *X509_verify_cert_error_string(long error)
    ctypedef struct NAME_CONSTRAINTS:
        pass
    int X509_check_purpose(X509 *certificate, int purpose, int is_ca)
    int NAME_CONSTRAINTS_check(X509 *certificate, NAME_CONSTRAINTS *constraints)
    void NAME_CONSTRAINTS_free(NAME_CONSTRAINTS *constraints)
    long X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_REVOKED
    long X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN
    long X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    long X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE
    unsigned int X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
    long X509_V_ERR_HOSTNAME_MISMATCH
    void *SSL_get_peer_cert_chain(const SSL *ssl)
    int X509_VERIFY_PARAM_set1_ip_asc(X509_VERIFY_PARAM *param, const char *address)

    # certificates that are made
    X509 *X509_new()
    int X509_set_version(X509 *certificate, long version)
    ASN1_INTEGER *X509_get_serialNumber(X509 *certificate)
    int ASN1_INTEGER_set_uint64(ASN1_INTEGER *number, uint64_t value)
    ASN1_TIME *X509_getm_notBefore(const X509 *certificate)
    ASN1_TIME *X509_getm_notAfter(const X509 *certificate)
    ASN1_TIME *ASN1_TIME_set(ASN1_TIME *time, long seconds)
    int X509_set_issuer_name(X509 *certificate, X509_NAME *name)
    int X509_set_pubkey(X509 *certificate, EVP_PKEY *key)
    int X509_NAME_add_entry_by_NID(
        X509_NAME *name, int nid, int kind, const unsigned char *data, int n, int at, int set)
    int V_ASN1_UTF8STRING
    int NID_name_constraints, X509_V_OK
    int NID_basic_constraints, NID_key_usage, NID_ext_key_usage
    int NID_subject_key_identifier, NID_authority_key_identifier
    void X509V3_set_ctx(X509V3_CTX *about, X509 *issuer, X509 *subject, void *request, void *crl,
                        int flags)
    X509_EXTENSION *X509V3_EXT_conf_nid(
        void *conf, X509V3_CTX *about, int nid, const char *text)
    X509_EXTENSION *X509_EXTENSION_create_by_NID(
        X509_EXTENSION **out, int nid, int critical, ASN1_OCTET_STRING *value)
    void X509_EXTENSION_free(X509_EXTENSION *extension)
    int X509_add_ext(X509 *certificate, X509_EXTENSION *extension, int at)
    int X509_sign(X509 *certificate, EVP_PKEY *key, const EVP_MD *digest)
    ASN1_OCTET_STRING *a2i_IPADDRESS(const char *text)
    ASN1_OCTET_STRING *ASN1_OCTET_STRING_new()
    void ASN1_OCTET_STRING_free(ASN1_OCTET_STRING *value)
    int ASN1_OCTET_STRING_set(ASN1_OCTET_STRING *value, const unsigned char *data, int n)
    int i2d_X509(X509 *certificate, unsigned char **out)

cdef extern from "libssl.h" nogil:
    EVP_PKEY *EVP_EC_gen(const char *curve)
    int i2d_PublicKey(EVP_PKEY *key, unsigned char **out)
    EVP_PKEY *d2i_PublicKey(int kind, EVP_PKEY **out, const unsigned char **at, long n)
    const EVP_MD *EVP_sha256()
    EVP_CIPHER *EVP_CIPHER_fetch(void *library, const char *name, const char *properties)
    int EVP_EncryptInit_ex(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *kind, void *engine,
                           const unsigned char *key, const unsigned char *iv)
    int EVP_DecryptInit_ex(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *kind, void *engine,
                           const unsigned char *key, const unsigned char *iv)
    EVP_CIPHER_CTX *EVP_CIPHER_CTX_new()
    int EVP_CIPHER_CTX_reset(EVP_CIPHER_CTX *ctx)
    int EVP_CIPHER_CTX_ctrl(EVP_CIPHER_CTX *ctx, int command, int n, void *data)
    int EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG
    int EVP_CIPHER_get_nid(const EVP_CIPHER *cipher)
    int EVP_CIPHER_get_key_length(const EVP_CIPHER *cipher)
    int EVP_CipherInit_ex(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *kind, void *engine,
                          const unsigned char *key, const unsigned char *iv, int encrypts)
    int EVP_CipherUpdate(EVP_CIPHER_CTX *ctx, unsigned char *out, int *out_n,
                         const unsigned char *data, int n)
    int EVP_CipherFinal_ex(EVP_CIPHER_CTX *ctx, unsigned char *out, int *out_n)
    int EVP_MD_get_size(const EVP_MD *hash)
    EVP_MAC *EVP_MAC_fetch(void *library, const char *name, const char *properties)
    EVP_MAC_CTX *EVP_MAC_CTX_new(EVP_MAC *mac)
    int EVP_MAC_init(EVP_MAC_CTX *ctx, const unsigned char *key, size_t n,
                     const OSSL_PARAM *params)
    int EVP_MAC_update(EVP_MAC_CTX *ctx, const unsigned char *data, size_t n)
    int EVP_MAC_final(EVP_MAC_CTX *ctx, unsigned char *out, size_t *n, size_t room)
    int EVP_MAC_CTX_set_params(EVP_MAC_CTX *ctx, const OSSL_PARAM *params)
    int EVP_MAX_IV_LENGTH

cdef extern from "libssl.h" nogil:
    OSSL_PARAM OSSL_PARAM_construct_octet_string(const char *key, void *data, size_t n)
    OSSL_PARAM OSSL_PARAM_construct_utf8_string(const char *key, char *data, size_t n)
    OSSL_PARAM OSSL_PARAM_construct_end()

cdef extern from "libssl.h" nogil:
    int RAND_bytes(unsigned char *out, int n)

cdef extern from "libssl.h" nogil:
    void *OPENSSL_malloc(size_t n)
    void OPENSSL_free(void *data)
    void OPENSSL_cleanse(void *data, size_t n)
    ctypedef void (*free_callback)(void *parent, void *pointer, CRYPTO_EX_DATA *data, int index,
                                   long argl, void *argp) noexcept
    int SSL_CTX_get_ex_new_index(long argl, void *argp, void *make, void *copy,
                                 free_callback free)
    int SSL_CTX_set_ex_data(SSL_CTX *ctx, int index, void *data)
    void *SSL_CTX_get_ex_data(const SSL_CTX *ctx, int index)
    const char *OpenSSL_version(int kind)
    unsigned long OpenSSL_version_num()
    int OPENSSL_VERSION

cdef extern from "libssl.h" nogil:
    ctypedef struct OSSL_CORE_HANDLE:
        pass
    ctypedef struct OSSL_DISPATCH:
        int function_id
        void (*function)() noexcept nogil
    ctypedef struct OSSL_ALGORITHM:
        const char *algorithm_names
        const char *property_definition
    ctypedef int OSSL_CALLBACK(const OSSL_PARAM *params, void *arg) noexcept nogil
    int OSSL_OP_DECODER
    int OSSL_FUNC_PROVIDER_QUERY_OPERATION
    int OSSL_FUNC_PROVIDER_GETTABLE_PARAMS
    int OSSL_FUNC_PROVIDER_GET_PARAMS
    int OSSL_FUNC_PROVIDER_GET_CAPABILITIES

cdef extern from "libssl.h" nogil:
    ctypedef struct OSSL_PROVIDER:
        pass
    ctypedef int (*provider_init)(
        const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *offered, const OSSL_DISPATCH **out,
        void **context) noexcept nogil
    ctypedef int (*provider_visitor)(OSSL_PROVIDER *provider, void *arg) noexcept nogil
    OSSL_LIB_CTX *OSSL_LIB_CTX_new()
    OSSL_PROVIDER *OSSL_PROVIDER_load(OSSL_LIB_CTX *library, const char *name)
    int OSSL_PROVIDER_add_builtin(OSSL_LIB_CTX *library, const char *name, provider_init init)
    int OSSL_PROVIDER_do_all(OSSL_LIB_CTX *library, provider_visitor visit, void *arg)
    const char *OSSL_PROVIDER_get0_name(const OSSL_PROVIDER *provider)
    void *OSSL_PROVIDER_get0_provider_ctx(const OSSL_PROVIDER *provider)
    const OSSL_ALGORITHM *OSSL_PROVIDER_query_operation(
        const OSSL_PROVIDER *provider, int operation, int *no_cache)
    const OSSL_PARAM *OSSL_PROVIDER_gettable_params(const OSSL_PROVIDER *provider)
    int OSSL_PROVIDER_get_params(const OSSL_PROVIDER *provider, OSSL_PARAM *params)
    int OSSL_PROVIDER_get_capabilities(
        const OSSL_PROVIDER *provider, const char *what, OSSL_CALLBACK *callback, void *arg)
    int EVP_default_properties_is_fips_enabled(OSSL_LIB_CTX *library)
