# cython: language_level=3, boundscheck=False, wraparound=False
"""Public keys of certificates are read by six readers, not by a hundred.

    SSL_CTX of a way out ─> library ─> provider here ─> OpenSSL's own provider
                                        └ of its decoders, those of READERS

OpenSSL 3.0 and 3.1 collect all decoders of the library anew for each certificate that a server
sends, which takes more than half of the time in which it is read. Newer ones keep the collection.
All else of the provider, and so each check of a certificate, is OpenSSL's as before.

If the operator has configured other providers, or FIPS, the library is the default one.
"""

from libc.string cimport strcmp, strstr
from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.openssl cimport (
    OSSL_ALGORITHM, OSSL_CALLBACK, OSSL_CORE_HANDLE, OSSL_DISPATCH, OSSL_LIB_CTX, OSSL_PARAM,
    OSSL_PROVIDER)

cdef enum:
    CACHES = 0x30200000         # the version that keeps its decoders
    MOST_READERS = 64

# Kinds of keys that a certificate for TLS may have; PEM is for files of authorities
cdef const char **READERS = ["EC", "RSA", "RSA-PSS", "ED25519", "ED448", NULL]

cdef OSSL_PROVIDER *whole = NULL
cdef OSSL_ALGORITHM few[MOST_READERS + 1]
cdef OSSL_DISPATCH functions[5]
cdef OSSL_LIB_CTX *library = NULL
cdef bint is_made = False


cdef OSSL_LIB_CTX *library_of_clients() noexcept:
    global is_made, library
    if not is_made:
        is_made = True
        if is_usual() and openssl.OpenSSL_version_num() < CACHES:
            library = make()
            openssl.ERR_clear_error()
    return library


cdef bint is_usual() noexcept:
    cdef int others = 0
    openssl.OSSL_PROVIDER_do_all(NULL, count_others, &others)
    return others == 0 and not openssl.EVP_default_properties_is_fips_enabled(NULL)


cdef int count_others(OSSL_PROVIDER *provider, void *others) noexcept nogil:
    if strcmp(openssl.OSSL_PROVIDER_get0_name(provider), b"default") != 0:
        (<int *>others)[0] += 1
    return 1


cdef OSSL_LIB_CTX *make() noexcept:
    """NULL: it cannot be made. What is made lasts as long as the process."""
    global whole
    cdef OSSL_LIB_CTX *inner = openssl.OSSL_LIB_CTX_new()
    cdef OSSL_LIB_CTX *outer = openssl.OSSL_LIB_CTX_new()
    whole = openssl.OSSL_PROVIDER_load(inner, b"default")
    if whole == NULL or outer == NULL or not choose():
        return NULL
    functions[0].function_id = openssl.OSSL_FUNC_PROVIDER_QUERY_OPERATION
    functions[0].function = <void (*)() noexcept nogil>query
    functions[1].function_id = openssl.OSSL_FUNC_PROVIDER_GETTABLE_PARAMS
    functions[1].function = <void (*)() noexcept nogil>gettable
    functions[2].function_id = openssl.OSSL_FUNC_PROVIDER_GET_PARAMS
    functions[2].function = <void (*)() noexcept nogil>get
    functions[3].function_id = openssl.OSSL_FUNC_PROVIDER_GET_CAPABILITIES
    functions[3].function = <void (*)() noexcept nogil>capabilities
    if not openssl.OSSL_PROVIDER_add_builtin(outer, b"few-readers", begin) or (
            openssl.OSSL_PROVIDER_load(outer, b"few-readers") == NULL):
        return NULL
    return outer


cdef bint choose() noexcept nogil:
    cdef int no_cache = 0
    cdef const OSSL_ALGORITHM *all_of_them = openssl.OSSL_PROVIDER_query_operation(
        whole, openssl.OSSL_OP_DECODER, &no_cache)
    cdef int n = 0
    if all_of_them == NULL:
        return False
    while all_of_them.algorithm_names != NULL and n < MOST_READERS:
        if is_chosen(all_of_them.algorithm_names, all_of_them.property_definition):
            few[n] = all_of_them[0]
            n += 1
        all_of_them += 1
    return n > 0


cdef bint is_chosen(const char *names, const char *properties) noexcept nogil:
    cdef int i = 0
    if strstr(properties, b"input=pem") != NULL:
        return True
    if strstr(properties, b"input=der") == NULL or (
            strstr(properties, b"structure=SubjectPublicKeyInfo") == NULL):
        return False
    if strcmp(names, b"DER") == 0:      # finds the kind of key
        return True
    while READERS[i] != NULL:
        if has_name(names, READERS[i]):
            return True
        i += 1
    return False


cdef bint has_name(const char *names, const char *name) noexcept nogil:
    """`names`: as RSA:rsaEncryption:1.2.840.113549.1.1.1."""
    cdef int i = 0
    while name[i] and names[i] == name[i]:
        i += 1
    return name[i] == 0 and (names[i] == 0 or names[i] == c":")


# --- what the library calls


cdef int begin(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *offered,
               const OSSL_DISPATCH **out, void **context) noexcept nogil:
    out[0] = functions
    context[0] = openssl.OSSL_PROVIDER_get0_provider_ctx(whole)
    return 1


cdef const OSSL_ALGORITHM *query(void *context, int operation, int *no_cache) noexcept nogil:
    if operation == openssl.OSSL_OP_DECODER:
        no_cache[0] = 0
        return few
    return openssl.OSSL_PROVIDER_query_operation(whole, operation, no_cache)


cdef const OSSL_PARAM *gettable(void *context) noexcept nogil:
    return openssl.OSSL_PROVIDER_gettable_params(whole)


cdef int get(void *context, OSSL_PARAM *params) noexcept nogil:
    return openssl.OSSL_PROVIDER_get_params(whole, params)


cdef int capabilities(void *context, const char *what, OSSL_CALLBACK *callback,
                      void *arg) noexcept nogil:
    return openssl.OSSL_PROVIDER_get_capabilities(whole, what, callback, arg)
