"""Which clients have rejected the certificate that an interception showed them (R57).

A rejection holds for the client's network, and for the subject of the certificate: the
server name, and the destination that had proved it. If a client connects to another
address by the same name, it finds nothing, because nobody has proved the name there.

All of it is on the page that the workers share (`policy.known`), because one rejection
must be known to every worker, and to the next program of an upgrade. The table is
bounded, and if a set of it is full, it gives up its oldest entry; then that client is
intercepted, and rejects, once more.
"""

from cutthrough.policy.known import REJECTED, Known

# After this time a client is tried again, because it may trust the authority by then
FORGET_US = 3600 * 10**6


def note_rejection(known: Known, network: bytes, name: bytes, key: bytes,
                   now_us: int) -> None:
    """A client of this network has rejected the certificate for `name`; `key`: of its
    CONNECT, canonical host and two bytes of port."""
    known.mark(REJECTED, _tag(network, name, key), now_us, FORGET_US)


def has_rejected(known: Known, network: bytes, name: bytes, key: bytes,
                 now_us: int) -> bool:
    """Has a client of this network rejected it within FORGET_US?"""
    count, at_us = known.read_mark(REJECTED, _tag(network, name, key))
    return count > 0 and now_us - at_us < FORGET_US


def _tag(network: bytes, name: bytes, key: bytes) -> bytes:
    return bytes((len(network),)) + network + name + b"\0" + key
