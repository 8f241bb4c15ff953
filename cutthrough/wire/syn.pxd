"""The fingerprint of a client's TCP: the signature of a SYN, as p0f writes it."""

cdef enum:
    # 24 options take 127 characters, all quirks 75, the rest 45
    MOST_SIGNATURE = 256

# Writes the signature of the IP and TCP headers of a SYN, MOST_SIGNATURE characters at most, without
# a NUL. Returns how many; 0: these are no such headers, or IPv6 has extensions.
cdef size_t write_signature(char *out, const unsigned char *packet, size_t n) noexcept nogil
