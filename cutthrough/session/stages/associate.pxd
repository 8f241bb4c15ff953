"""UDP by SOCKS5: an association, and the datagrams that it relays."""

from cutthrough.session.model.client cimport Client

# The client's request for an association; its user is known. Answers it, and waits in DATAGRAMS.
cdef int associate(Client client) except -1
# The client's connection is readable, in DATAGRAMS: the association ends with it.
cdef int watch_association(Client client) except -1
