"""The columns that the END of an exchange has, in the order of exchange.columns.

Each function adds the cells of some columns, which stand one behind the other.
"""

from libc.stdint cimport int64_t
from cutthrough.tape.batch cimport Batch
from cutthrough.tape.end_record cimport EndRecord
from cutthrough.tape.texts cimport Text

# Both times, and the kind.
cdef int put_kind(Batch to, const EndRecord *end) except -1
# Method, host, port and URL; of a tunnel, the URL is host and port. `head`: in UTF-8.
cdef int put_request(Batch to, const EndRecord *end, Text host, Text head) except -1
# From the status to the user.
cdef int put_decision(Batch to, const EndRecord *end, const Text *texts) except -1
# From the client's address to the bytes that were moved.
cdef int put_peers(Batch to, const EndRecord *end, const Text *texts) except -1
# From head_us to client_tls_us.
cdef int put_times(Batch to, const EndRecord *end) except -1
# Of a tunnel's first bytes: from the protocol to `pinned`.
cdef int put_opening(Batch to, const EndRecord *end, const Text *texts) except -1
# Versions and ciphers of both connections.
cdef int put_tls(Batch to, const EndRecord *end, const Text *texts) except -1
# Of the client's connection. Returns their bytes.
cdef int64_t put_fingerprints(Batch to, const Text *texts) except -1
# Versions of both connections, and bytes of the heads as they were sent.
cdef int put_http(Batch to, const EndRecord *end, Text up, Text down) except -1
