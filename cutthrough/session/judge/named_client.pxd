"""The client that a trusted proxy names in X-Forwarded-For."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.http1 cimport Head

# Sets client.address for this request. Called only if the listener believes some proxies.
cdef int take_named_client(Client client, const Head *head, const char *data) except -1
