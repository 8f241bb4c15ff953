"""The request in hand: its fields in a client's connection, except Python objects."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.policy.hop cimport Hop

# By value in Client, and zeroed between two requests, but for `rule`. Fields stand with the phase
# that sets them, see phases; later phases read them.
cdef struct Request:
    # judge, and again for each address
    Hop hop                             # the way to the origin
    int rule                            # number of the deciding rule; -1: default; or NOT_ASKED
    uint32_t retry_s                    # seconds for Retry-After; 0: the reply's constant
    uint16_t port                       # the destination's; 0: not known
    uint16_t route                      # policy's number of the way; 0: the default
    uint16_t status                     # status sent to the client; 0: none yet
    uint16_t path_at, path_len          # in Client.head, which is at most HEAD_BLOCK long
    uint16_t parting                    # octets for a client that had ended its tunnel's stream

    # the head, or a stage
    uint8_t method                      # wire's Method
    uint8_t minor                       # minor version: HTTP/1.minor
    uint8_t host_kind                   # the destination's
    uint8_t persistent                  # the client's side may carry another request
    uint8_t is_tunnel
    uint8_t has_upgrade
    uint8_t narrowed                    # transparent's Narrowing
    uint8_t for_origin                  # in origin form, for a named origin
    uint8_t can_retry                   # safe to send again, no byte of a body sent (R19)
    uint8_t final_recipient_outcome     # Outcome if the request ends here (Max-Forwards), or OK
    uint8_t awaits_100                  # the client waits for a 100 that has not come
    uint8_t hint                        # for a refusal: wire's Hint; of SOCKS, its SocksMessage

    # verify
    uint8_t is_tried                    # Client.login is no user's yet

    # judge
    uint8_t address_dependent           # rule and limits depend on the address, not known yet
    uint8_t reported                    # passed, though a rule would refuse it
    uint8_t denied                      # Outcome of the last address that was refused
    uint8_t pinned                      # passes, because clients have rejected our certificate
    uint8_t needs_opening               # rules depend on the tunnel's first bytes: see peek
    uint8_t acts                        # what the rule does besides: policy's Act
    uint8_t recording_inside            # policy's Recording of requests inside the tunnel

    # faults, replay, room
    uint8_t acted                       # the rule's acts have begun: see act
    uint8_t stands_in                   # a tunnel's origin is none: see recorded
    uint8_t room                        # to record it: see recorded
    uint8_t queued                      # it waits for its rate, and then comes this phase + 1

    # the way to the origin
    uint8_t dials                       # no connection from the idle pool is good enough
    uint8_t retried
    uint8_t resumes                     # retried, and what was sent waits in the pump
    uint8_t marks_origin                # its origin connection is not for other requests

    # send, and the response
    uint8_t interim                     # 1xx heads seen
    uint8_t origin_persistent           # may be pooled after this response
    uint8_t closing                     # the connection ends after this response
    uint8_t ending                      # Outcome after DELIVER
    uint8_t sides                       # sides with bytes on their way in DELIVER; see delivery
