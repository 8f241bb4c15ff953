"""The stages by number; session.stages has their table, and runs them."""

# Bits of Client.stages: the stages that are left, the lowest bit first. TLS has no row in the
# table: it comes after the PROXY header and before all others.
cdef enum Stage:
    STAGE_PROXY = 1             # a header of the PROXY protocol names the client
    N_STAGES = 1
    STAGE_TLS = 64              # a handshake; see secure
    STAGE_TLS_LATE = 128        # it was put off to a later turn
