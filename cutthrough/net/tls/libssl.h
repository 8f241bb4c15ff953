/* The headers of libssl and libcrypto: OpenSSL 3, or AWS-LC.

   AWS-LC has the interface of OpenSSL 1.1 and parts of OpenSSL 3. Here are those names of
   OpenSSL 3 that openssl.pxd declares and AWS-LC lacks, made of what it has: as much of each as
   this program uses. A name for what AWS-LC does not have at all does nothing, and says so. */
#ifndef CUTTHROUGH_LIBSSL_H
#define CUTTHROUGH_LIBSSL_H

#include <openssl/ssl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#ifndef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
#define SSL_OP_NO_RX_CERTIFICATE_COMPRESSION 0          /* before OpenSSL 3.2 there is none */
#endif

#ifndef OPENSSL_IS_AWSLC

#include <openssl/core_dispatch.h>
#include <openssl/dh.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/types.h>

/* OpenSSL tells no numbers of records: keys.pyx counts them itself */
enum {
    LIBSSL_COUNTS_RECORDS = 0, LIBSSL_DEFERS_TICKETS = 0, LIBSSL_NEEDS_TICKET_KEY = 0,
    LIBSSL_MISSES_ALERTS = 0, LIBSSL_CHAINS_BY_KEY = 0
};
#define LIBSSL_VERIFY NULL
#define libssl_harden(ctx) (1)
#define libssl_prefer_aes_128(ctx) ((void)(ctx))        /* the order of its suites says so */
#define libssl_renegotiates_safely(ssl) (1)             /* or the handshake has failed */
#define SSL_CTX_set_session_psk_dhe_timeout(ctx, seconds) ((void)(ctx))

/* The server chooses the modulus of finite-field Diffie-Hellman, and libssl accepts 10 000 bits:
   0.9 s of a client's CPU; 31 ms with 4096 */
enum { LIBSSL_MOST_DH = 4096 };
static inline int libssl_judge_security(const SSL *ssl, const SSL_CTX *ctx, int op, int bits, int nid,
                                        void *other, void *ex) {
    if (op == SSL_SECOP_TMP_DH && EVP_PKEY_get_bits((EVP_PKEY *)other) > LIBSSL_MOST_DH) {
        ERR_raise(ERR_LIB_DH, DH_R_MODULUS_TOO_LARGE);  /* libssl itself would say: too small */
        return 0;
    }
    return SSL_CTX_get_security_callback(SSL_get_SSL_CTX(ssl))(ssl, ctx, op, bits, nid, other, ex);
}
#define libssl_bound_dh(ssl) SSL_set_security_callback((ssl), libssl_judge_security)

static inline uint64_t SSL_get_read_sequence(const SSL *ssl) { (void)ssl; return 0; }
static inline uint64_t SSL_get_write_sequence(const SSL *ssl) { (void)ssl; return 0; }

#else

#include <openssl/ec.h>
#include <openssl/hmac.h>
#include <string.h>

/* Its tickets of TLS 1.3 wait for the next write (SSL_CTX_set_num_tickets in its ssl.h). It makes
   one even if the callback has no key for it. It cannot read an alert in clear behind a
   ServerHello of TLS 1.3, as clients with OpenSSL send it that do not trust us. A context's chain
   belongs to its leaf, or else to a leaf with the kind of key that the chain's first has. */
enum {
    LIBSSL_COUNTS_RECORDS = 1, LIBSSL_DEFERS_TICKETS = 1, LIBSSL_NEEDS_TICKET_KEY = 1,
    LIBSSL_MISSES_ALERTS = 1, LIBSSL_CHAINS_BY_KEY = 1
};

/* --- no providers: each of their functions fails, and key_readers is not needed */

typedef struct libssl_library OSSL_LIB_CTX;
typedef struct libssl_provider OSSL_PROVIDER;
typedef struct libssl_handle OSSL_CORE_HANDLE;
typedef struct { int function_id; void (*function)(void); } OSSL_DISPATCH;
typedef struct { const char *algorithm_names, *property_definition; } OSSL_ALGORITHM;
typedef struct { const char *key; void *data; size_t data_size; } OSSL_PARAM;
typedef int OSSL_CALLBACK(const OSSL_PARAM *, void *);
typedef int libssl_init(const OSSL_CORE_HANDLE *, const OSSL_DISPATCH *, const OSSL_DISPATCH **,
                        void **);
enum {
    OSSL_OP_DECODER, OSSL_FUNC_PROVIDER_QUERY_OPERATION, OSSL_FUNC_PROVIDER_GETTABLE_PARAMS,
    OSSL_FUNC_PROVIDER_GET_PARAMS, OSSL_FUNC_PROVIDER_GET_CAPABILITIES
};
#define OSSL_LIB_CTX_new() ((OSSL_LIB_CTX *)NULL)
#define OSSL_PROVIDER_load(library, name) ((OSSL_PROVIDER *)NULL)
#define OSSL_PROVIDER_add_builtin(library, name, init) ((void)(init), 0)
#define OSSL_PROVIDER_do_all(library, visit, arg) ((visit)(NULL, (arg)))
#define OSSL_PROVIDER_get0_name(provider) ("")
#define OSSL_PROVIDER_get0_provider_ctx(provider) (NULL)
#define OSSL_PROVIDER_query_operation(provider, operation, no_cache) \
    ((void)(no_cache), (const OSSL_ALGORITHM *)NULL)
#define OSSL_PROVIDER_gettable_params(provider) ((const OSSL_PARAM *)NULL)
#define OSSL_PROVIDER_get_params(provider, params) ((void)(params), 0)
#define OSSL_PROVIDER_get_capabilities(provider, what, callback, arg) \
    ((void)(what), (void)(callback), (void)(arg), 0)
#define EVP_default_properties_is_fips_enabled(library) (FIPS_mode())

/* --- contexts and connections */

#ifndef X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
#define X509_CHECK_FLAG_NEVER_CHECK_SUBJECT 0           /* it never does, then */
#endif

#define SSL_CTX_new_ex(library, properties, method) ((void)(library), SSL_CTX_new(method))
#define SSL_CTX_set_max_early_data(ctx, n) ((void)(ctx), 1)     /* it takes none unless told to */
#define SSL_set_num_tickets(ssl, n) ((void)(ssl), (void)(n), 1)  /* SSL_OP_NO_TICKET is enough */
#define SSL_OP_PRIORITIZE_CHACHA 0
#define SSL_OP_NO_ENCRYPT_THEN_MAC 0                            /* it has no such extension */
#define SSL_SESSION_get_max_fragment_length(session) ((void)(session), 0)   /* nor this one */
#define SSL_rstate_string(ssl) ((void)(ssl), "RH")              /* SSL_has_pending says it all */
#define SSL_R_NO_SUITABLE_KEY_SHARE SSL_R_NO_SHARED_GROUP
#define SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM SSL_R_NO_COMMON_SIGNATURE_ALGORITHMS
#define SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS SSL_R_NO_COMMON_SIGNATURE_ALGORITHMS
#define NID_kx_dhe (-1)                                         /* no cipher has it */
#define libssl_bound_dh(ssl) ((void)(ssl))                      /* nor the exchange */

/* --- what OpenSSL's security level 2 refuses */

/* Keys of less than 112 bits, and digests of less in signatures but a trusted certificate's own */
static inline int libssl_is_weak_key(X509 *certificate) {
    EVP_PKEY *key = X509_get0_pubkey(certificate);
    int kind = key ? EVP_PKEY_id(key) : EVP_PKEY_NONE;
    if (kind == EVP_PKEY_RSA || kind == EVP_PKEY_RSA_PSS) return EVP_PKEY_bits(key) < 2048;
    if (kind == EVP_PKEY_EC) return EVP_PKEY_bits(key) < 224;
    return kind != EVP_PKEY_ED25519;
}
static inline int libssl_is_weak_digest(X509 *certificate) {
    int digest = NID_undef;
    OBJ_find_sigid_algs(X509_get_signature_nid(certificate), &digest, NULL);
    return digest == NID_md4 || digest == NID_md5 || digest == NID_sha1 || digest == NID_ripemd160;
}
static inline int libssl_on_verified(int good, X509_STORE_CTX *store) {
    X509 *one = X509_STORE_CTX_get_current_cert(store);
    int depth = X509_STORE_CTX_get_error_depth(store);
    int last = (int)sk_X509_num(X509_STORE_CTX_get0_chain(store)) - 1;
    if (!good || !one) return good;
    if (libssl_is_weak_key(one)) {
        X509_STORE_CTX_set_error(store, depth ? X509_V_ERR_CA_KEY_TOO_SMALL
                                              : X509_V_ERR_EE_KEY_TOO_SMALL);
        return 0;
    }
    if (depth < last && libssl_is_weak_digest(one)) {
        X509_STORE_CTX_set_error(store, X509_V_ERR_CA_MD_TOO_WEAK);
        return 0;
    }
    return 1;
}
#define LIBSSL_VERIFY ((void *)libssl_on_verified)

static inline int libssl_set_ciphers(SSL_CTX *ctx, const char *names) {
    size_t i;
    if (!SSL_CTX_set_cipher_list(ctx, names)) return 0;
    for (i = 0; i < sk_SSL_CIPHER_num(SSL_CTX_get_ciphers(ctx)); i++) {
        if (SSL_CIPHER_get_bits(sk_SSL_CIPHER_value(SSL_CTX_get_ciphers(ctx), i), NULL) < 128)
            return 0;
    }
    return 1;
}
#define SSL_CTX_set_cipher_list(ctx, names) (libssl_set_ciphers((ctx), (names)))

/* A server takes the client's order of suites, whatever its own. A client that prefers ChaCha20 to
   AES has no instructions for AES. */
static inline enum ssl_select_cert_result_t libssl_choose_suite(const SSL_CLIENT_HELLO *hello) {
    size_t i, aes = 0;
    for (i = 0; i + 1 < hello->cipher_suites_len; i += 2) {
        unsigned suite = hello->cipher_suites[i] << 8 | hello->cipher_suites[i + 1];
        if (suite == 0x1303 && !aes) break;
        aes |= suite == 0x1302;
        if (suite == 0x1301) {
            SSL_set_ciphersuites(hello->ssl, "TLS_AES_128_GCM_SHA256");
            break;
        }
    }
    return ssl_select_cert_success;
}
#define libssl_prefer_aes_128(ctx) (SSL_CTX_set_select_certificate_cb((ctx), libssl_choose_suite))

/* A server without RFC 5746 (CVE-2009-3555) */
#define libssl_renegotiates_safely(ssl) (SSL_get_secure_renegotiation_support(ssl))

/* Signatures of our own certificate are another list there than those of a peer. Both are by
   default without Ed25519 and with SHA-1. Ours are those of OWN_SIGNATURES in context.pyx */
static const uint16_t libssl_own_signatures[] = {
    SSL_SIGN_ECDSA_SECP256R1_SHA256, SSL_SIGN_ECDSA_SECP384R1_SHA384,
    SSL_SIGN_ECDSA_SECP521R1_SHA512, SSL_SIGN_ED25519, SSL_SIGN_RSA_PSS_RSAE_SHA256,
    SSL_SIGN_RSA_PSS_RSAE_SHA384, SSL_SIGN_RSA_PSS_RSAE_SHA512, SSL_SIGN_RSA_PKCS1_SHA256,
    SSL_SIGN_RSA_PKCS1_SHA384, SSL_SIGN_RSA_PKCS1_SHA512,
};
enum { LIBSSL_OWN_N = sizeof libssl_own_signatures / sizeof *libssl_own_signatures };
static inline long libssl_set_own(SSL_CTX *ctx) {
    return SSL_CTX_set_signing_algorithm_prefs(ctx, libssl_own_signatures, LIBSSL_OWN_N);
}
static inline int libssl_set_accepted(SSL *ssl, const char *names) {
    return SSL_set1_sigalgs_list(ssl, names) && SSL_set_signing_algorithm_prefs(
        ssl, libssl_own_signatures, LIBSSL_OWN_N);
}
static inline int libssl_harden(SSL_CTX *ctx) {
    return libssl_set_own(ctx) && SSL_CTX_set_verify_algorithm_prefs(
        ctx, libssl_own_signatures, LIBSSL_OWN_N);
}
#define SSL_CTX_set1_client_sigalgs_list(ctx, names) ((void)(names), libssl_set_own(ctx))
#define SSL_set1_sigalgs_list(ssl, names) (libssl_set_accepted((ssl), (names)))

/* --- keys, digests, ciphers */

#define EVP_PKEY_get_base_id EVP_PKEY_base_id
#define EVP_MD_get_size(md) ((int)EVP_MD_size(md))
#define EVP_CIPHER_get_nid EVP_CIPHER_nid
#define EVP_CIPHER_get_key_length(cipher) ((int)EVP_CIPHER_key_length(cipher))
#define X509_self_signed(x, verify) (X509_check_issued((x), (x)) == X509_V_OK)

static inline EVP_CIPHER *EVP_CIPHER_fetch(void *library, const char *name,
                                           const char *properties) {
    (void)library, (void)properties;
    if (strcmp(name, "AES-128-GCM") == 0) return (EVP_CIPHER *)EVP_aes_128_gcm();
    if (strcmp(name, "AES-256-GCM") == 0) return (EVP_CIPHER *)EVP_aes_256_gcm();
    if (strcmp(name, "AES-256-CBC") == 0) return (EVP_CIPHER *)EVP_aes_256_cbc();
    if (strcmp(name, "ChaCha20-Poly1305") == 0) return (EVP_CIPHER *)EVP_chacha20_poly1305();
    return NULL;
}

/* Of P-256 alone */
static inline EVP_PKEY *EVP_EC_gen(const char *curve) {
    EC_KEY *key = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    EVP_PKEY *made = EVP_PKEY_new();
    (void)curve;
    if (key && made && EC_KEY_generate_key(key) && EVP_PKEY_assign_EC_KEY(made, key)) return made;
    EC_KEY_free(key);
    EVP_PKEY_free(made);
    return NULL;
}

static inline EVP_PKEY *libssl_read_point(EVP_PKEY **out, const unsigned char **at, long n) {
    EC_KEY *key = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    if (key && o2i_ECPublicKey(&key, at, n) && EVP_PKEY_set1_EC_KEY(*out, key)) {
        EC_KEY_free(key);
        return *out;
    }
    EC_KEY_free(key);
    return NULL;
}
#define d2i_PublicKey(kind, out, at, n) ((void)(kind), libssl_read_point((out), (at), (n)))

/* --- HMAC, whose context a callback of tickets gets, too */

typedef struct libssl_mac EVP_MAC;
typedef HMAC_CTX EVP_MAC_CTX;
#define EVP_MAC_fetch(library, name, properties) ((EVP_MAC *)1)
#define EVP_MAC_CTX_new(mac) ((void)(mac), HMAC_CTX_new())
#define EVP_MAC_init(ctx, key, n, params) (HMAC_Init_ex((ctx), (key), (n), NULL, NULL))
#define EVP_MAC_update(ctx, data, n) (HMAC_Update((ctx), (data), (n)))
#define SSL_CTX_set_tlsext_ticket_key_evp_cb SSL_CTX_set_tlsext_ticket_key_cb
#define OSSL_PARAM_construct_octet_string(key, data, n) ((OSSL_PARAM){(key), (data), (n)})
#define OSSL_PARAM_construct_utf8_string(key, data, n) ((OSSL_PARAM){(key), (data), (n)})
#define OSSL_PARAM_construct_end() ((OSSL_PARAM){NULL, NULL, 0})

static inline int EVP_MAC_final(EVP_MAC_CTX *ctx, unsigned char *out, size_t *n, size_t room) {
    unsigned int size = 0;
    int done = room >= HMAC_size(ctx) && HMAC_Final(ctx, out, &size);
    *n = size;
    return done;
}

/* "key" and "digest", SHA256 or SHA384 */
static inline int EVP_MAC_CTX_set_params(EVP_MAC_CTX *ctx, const OSSL_PARAM *params) {
    const EVP_MD *digest = NULL;
    const void *key = "";
    size_t n = 0;
    for (; params->key; params++) {
        if (strcmp(params->key, "digest") == 0) {
            digest = strcmp(params->data, "SHA384") == 0 ? EVP_sha384() : EVP_sha256();
        } else {
            key = params->data, n = params->data_size;
        }
    }
    return HMAC_Init_ex(ctx, key, n, digest, NULL);
}

#endif
#endif
