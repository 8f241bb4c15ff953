"""The request in hand: what a client connection knows of it, beside Python objects."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.policy.hop cimport Hop

# By value in Client, and zeroed between two requests, but for `rule`.
cdef struct Request:
    Hop hop                             # which way it goes
    int rule                            # that decided; -1: the default; or NOT_ASKED
    uint32_t retry_s                    # for Retry-After; 0: as the reply's constant says
    uint16_t port                       # of the destination; 0: it is not known
    uint16_t status                     # sent to the client; 0: none yet
    uint16_t path_at, path_len          # in Client.head, which is at most HEAD_BLOCK long
    uint8_t method                      # wire's Method
    uint8_t minor                       # of the version: HTTP/1.minor
    uint8_t host_kind                   # of the destination
    uint8_t persistent                  # the client's side may carry another request
    uint8_t is_tunnel
    uint8_t has_upgrade
    uint8_t can_retry                   # safe to send again, nothing of a body sent (R19)
    uint8_t retried
    uint8_t final_recipient_outcome     # of a request that ends here (Max-Forwards), or OK
    uint8_t address_dependent           # rule and limits depend on the address, not known yet
    uint8_t reported                    # it passed, though a rule would have it refused
    uint8_t denied                      # Outcome of the last address that was refused
    uint8_t interim                     # 1xx heads seen
    uint8_t awaits_100                  # the client waits for a 100 that has not come
    uint8_t origin_persistent           # may be pooled after this response
    uint8_t marks_origin                # its origin connection is not for other requests
    uint8_t hint                        # wire's Hint: the detail of a refusal
    uint8_t closing                     # the client was told that this response is the last
    uint8_t ending                      # Outcome, if DELIVER comes before it
    uint8_t sides                       # with bytes on their way then; see delivery
