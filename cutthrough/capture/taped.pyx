# cython: language_level=3
"""An exchange to be recorded, as it came out of the ring: nothing is redacted.

Times are Unix time. `up` and `down`: bodies with their framing. A number of bytes is 2**64 - 1
if it was not counted.
"""

from libc.stdint cimport int64_t, uint64_t


cdef class Taped:
    # `reason`: the label of its outcome. `down_head`: "" if it had no room in the ring. `pieces`:
    # of a WebSocket, both ways. `times`: of the pieces of `down`. `wait_us`: between the request's
    # end and the head. `asked`: bytes of `up` that had come before each piece of `down`; None:
    # all of them before the head. `head_asked`: … before the head. `is_unanswered`: no head of an
    # answer has come

    def __init__(self, bint is_intercepted, str host, int port, str reason, str up_head,
                 str down_head, bytes up, list pieces, list down, list times, uint64_t up_bytes,
                 uint64_t down_bytes, bint up_chunked, bint down_chunked, bint was_cut,
                 int64_t begun_us, int64_t head_at_us, int64_t wait_us, str user="",
                 list asked=None, uint64_t head_asked=0, bint is_unanswered=False):
        self.is_intercepted, self.port, self.reason = is_intercepted, port, reason
        self.user_line, self.host_line = user.encode(), host.encode("latin-1")
        self.up_lines, self.down_lines = up_head.encode("latin-1"), down_head.encode("latin-1")
        self.up, self.pieces = up, pieces
        self.timed = [at_us.to_bytes(8, "little") + data
                      for at_us, data in zip(times, down, strict=True)]
        self.up_bytes, self.down_bytes = up_bytes, down_bytes
        self.up_chunked, self.down_chunked, self.was_cut = up_chunked, down_chunked, was_cut
        self.begun_us, self.head_at_us, self.wait_us = begun_us, head_at_us, wait_us
        self.asked, self.head_asked = asked, head_asked
        self.is_unanswered = is_unanswered

    @property
    def user(self):
        return self.user_line.decode(errors="replace")

    @property
    def host(self):
        return self.host_line.decode("latin-1")

    @property
    def up_head(self):
        return self.up_lines.decode("latin-1")

    @property
    def down_head(self):
        return self.down_lines.decode("latin-1")

    @property
    def down(self):
        return [piece[8:] for piece in self.timed]

    @property
    def times(self):
        return [int.from_bytes(piece[:8], "little") for piece in self.timed]
