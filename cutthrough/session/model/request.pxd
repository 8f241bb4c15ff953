"""The request in hand: its fields in a client's connection, except Python objects."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cutthrough.policy.hop cimport Hop

# By value in Client, and zeroed between two requests, but for `rule`. Fields stand with the phase
# that sets them, see phases; later phases read them. In C, because Cython has no bit-fields: flags and
# small numbers are bits, and a connection at rest is 24 bytes smaller.
cdef enum:
    # How often a request is sent again that an origin of HTTP/2 has not read; the last time by a
    # connection of its own, whose first stream it is
    MOST_TRIES = 3

cdef extern from *:
    """
    typedef struct {
        cutthrough_hop hop;
        int rule;
        uint32_t retry_s;
        uint16_t port, route, status, path_at, path_len, parting;
        uint8_t method, final_recipient_outcome, hint, denied, acts, ending;
        _Bool persistent : 1, is_tunnel : 1, has_upgrade : 1, for_origin : 1, can_retry : 1,
            awaits_100 : 1, is_tried : 1, address_dependent : 1, reported : 1, pinned : 1,
            needs_opening : 1, acted : 1, stands_in : 1, dials : 1,
            resumes : 1, marks_origin : 1, is_tethered : 1, origin_persistent : 1, closing : 1;
        unsigned minor : 4, host_kind : 2, narrowed : 2, recording_inside : 3, room : 3,
            queued : 5, sides : 2, interim : 6, tries : 2;
    } cutthrough_request;
    _Static_assert(sizeof(cutthrough_request) == 40, "a hole, or a field too many");
    """
    ctypedef struct Request "cutthrough_request":
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
        unsigned minor                      # minor version: HTTP/1.minor
        unsigned host_kind                  # the destination's
        bint persistent                     # the client's side may carry another request
        bint is_tunnel
        bint has_upgrade
        unsigned narrowed                   # transparent's Narrowing
        bint for_origin                     # in origin form, for a named origin
        bint can_retry                      # safe to send again, no byte of a body sent (R19)
        uint8_t final_recipient_outcome     # Outcome if the request ends here (Max-Forwards), or OK
        bint awaits_100                     # the client waits for a 100 that has not come
        uint8_t hint                        # for a refusal: wire's Hint; of SOCKS, its SocksMessage

        # verify
        bint is_tried                       # Client.login is no user's yet

        # judge
        bint address_dependent              # rule and limits depend on the address, not known yet
        bint reported                       # passed, though a rule would refuse it
        uint8_t denied                      # Outcome of the last address that was refused
        bint pinned                         # passes, because clients have rejected our certificate
        bint needs_opening                  # rules depend on the tunnel's first bytes: see peek
        uint8_t acts                        # what the rule does besides: policy's Act
        unsigned recording_inside           # policy's Recording of requests inside the tunnel

        # faults, replay, room
        bint acted                          # the rule's acts have begun: see act
        bint stands_in                      # a tunnel's origin is none: see Replay
        unsigned room                       # to record it: see recording_room
        unsigned queued                     # phase behind its wait for a rate, plus 1; 0: no wait

        # the way to the origin
        bint dials                          # no connection from the idle pool is good enough
        unsigned tries                      # how often it was sent again
        bint resumes                        # sent again, and what was sent waits in the pump
        bint marks_origin                   # its origin connection is not for other requests
        bint is_tethered                    # … but for those of its own client connection: see tether

        # send, and the response
        unsigned interim                    # 1xx heads seen
        bint origin_persistent              # may be pooled after this response
        bint closing                        # the connection ends after this response
        uint8_t ending                      # Outcome after DELIVER
        unsigned sides                      # sides with bytes on their way in DELIVER; see delivery
