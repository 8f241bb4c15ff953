"""The answer to a browser that asks for its auto-configuration."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.authority cimport Target
from cutthrough.wire.http1 cimport Head

# Is it a request in origin form for the file, and has its listener one?
cdef bint asks_for_pac(Client client, const Head *head, const char *data,
                       const Target *target) noexcept
# Answers with the file for the host and port that the request named, and ends the connection.
cdef int send_pac(Client client, const Target *target) except -1
