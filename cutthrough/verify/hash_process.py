"""One process that computes password hashes.

`python -m cutthrough.verify.hash_process FD`: FD is its end of a SOCK_SEQPACKET pair. A
question is one packet, `HASH NUL SECRET`; the answer another: `1` it is the password,
`0` it is not, or `!` and the kind of the error. One at a time. It ends with its worker:
killed by the kernel in the middle of a hash (prctl(2), PR_SET_PDEATHSIG), by the end of
the file between two.

A process and not a thread, because a thread that loses its core to the event loop may
hold the interpreter's lock as it does, for which the loop then waits. It takes no core
away when it wakes up (SCHED_BATCH), is nicer than the worker, and computes in breaths
(`verify.duty_cycle`), so that nobody waits for its core longer than one of these.
docs/decisions/0007-hashes-in-processes.md has the figures.
"""

import contextlib
import os
import signal
import socket
import sys

# Longer than any question: a hash, and a secret out of 4096 bytes of field.
MOST_BYTES = 16384

RIGHT, WRONG, FAULT = b"1", b"0", b"!"

# Of a core that a thread of niceness 0 wants as well this leaves a quarter, which is
# what the breaths ask for. Not SCHED_IDLE: where all cores are busy who logs in would
# wait for ever; and a core that runs such a thread counts as idle, so that others are
# put there, but gives way at once within one session or control group only.
NICENESS = 5

_PR_SET_PDEATHSIG = 1


def serve(sock: socket.socket) -> None:
    """Answers until the other side is gone."""
    from cutthrough.verify import duty_cycle

    with contextlib.suppress(ConnectionError):
        while packet := sock.recv(MOST_BYTES):
            duty_cycle.start()
            try:
                said = answer(packet)
            finally:
                duty_cycle.stop()
            sock.send(said)


def answer(packet: bytes) -> bytes:
    from cutthrough.policy.users import check_hash

    hash, _, secret = packet.partition(b"\0")
    try:
        return RIGHT if check_hash(hash.decode(), secret) else WRONG
    except Exception as error:      # a library that is missing, or refuses the hash
        return FAULT + type(error).__name__.encode()    # its text may hold the secret


def main(fd: int) -> int:
    """Serves descriptor `fd`; returns the exit status."""
    # Here: the other side imports this module too, and needs neither
    import ctypes

    import cutthrough.policy.users  # noqa: F401, before it is slow

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(OSError):      # a filter of system calls
        os.nice(NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    serve(socket.socket(fileno=fd))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
