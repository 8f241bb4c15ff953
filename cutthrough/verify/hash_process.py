"""One process that computes password hashes.

`python -m cutthrough.verify.hash_process FD`: FD is its end of a SOCK_SEQPACKET pair. A
question is one packet, `HASH NUL SECRET`, and so is its answer: `1` for the right
password, `0` for a wrong one, or `!` and the kind of the error. Questions come one at a
time. The process ends with its worker: in the middle of a hash the kernel kills it
(prctl(2), PR_SET_PDEATHSIG), between hashes it reads the end of file.

This is a process, not a thread, because a thread that loses its core to the event loop
may hold the interpreter's lock meanwhile, and the loop then waits for the lock. The
process preempts no other when it wakes up (SCHED_BATCH), has a higher niceness than the
worker, and computes in slices of 0.5 ms (`process.duty_cycle`), so that other work
waits for the core no longer than one slice. The figures are in
docs/decisions/0007-hashes-in-processes.md.
"""

import contextlib
import os
import signal
import socket
import sys

# More than any question: a hash, and a secret from a field of at most 4096 bytes.
MOST_BYTES = 16384

RIGHT, WRONG, FAULT = b"1", b"0", b"!"

# Leaves this process a quarter of a core that a thread of niceness 0 also wants; the
# duty cycle takes as much. Not SCHED_IDLE: if all cores are busy, logins would wait for
# ever. Also, the scheduler counts a core that runs a SCHED_IDLE thread as idle and puts
# other threads there, but the thread yields at once only within one session or control
# group.
NICENESS = 5

_PR_SET_PDEATHSIG = 1


def serve(sock: socket.socket) -> None:
    """Answers questions until the worker closes its end."""
    from cutthrough.process import duty_cycle

    with contextlib.suppress(ConnectionError):
        while packet := sock.recv(MOST_BYTES):
            duty_cycle.start()
            try:
                reply = answer(packet)
            finally:
                duty_cycle.stop()
            sock.send(reply)


def answer(packet: bytes) -> bytes:
    """Returns the answer to one question."""
    from cutthrough.policy.users import check_hash

    hash, _, secret = packet.partition(b"\0")
    try:
        return RIGHT if check_hash(hash.decode(), secret) else WRONG
    except Exception as error:      # the library is missing, or rejects the hash
        return FAULT + type(error).__name__.encode()    # its text may hold the secret


def main(fd: int) -> int:
    """Serves descriptor `fd`; returns the exit status."""
    # Imported here, because the worker imports this module too and needs neither
    import ctypes

    import cutthrough.policy.users  # noqa: F401, while still at normal priority

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(OSError):      # a seccomp filter may refuse these
        os.nice(NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    serve(socket.socket(fileno=fd))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
