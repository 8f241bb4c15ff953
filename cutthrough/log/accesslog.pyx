# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The access log: one line for each request and each tunnel, at its end.

Lines are formatted in C into one buffer and passed to a sink in batches, whole lines
only, so that many workers can append to one file. A slow log never delays the proxy: a
sink takes what it can without waiting, the loop calls back when the sink is writable
again, and lines that do not fit the buffer are dropped, counted and reported.

log.jsonline and log.formatline make the lines; log.sinks writes them.
"""

import logging
import os

from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memmove
from cutthrough.log.formatline import FormatLine
from cutthrough.log.jsonline cimport Line
from cutthrough.log.jsonline import JsonLine
from cutthrough.log.sinks cimport MOST_MESSAGE, LogSink
from cutthrough.log.sinks import FileSink, open_sink
from cutthrough.config.log_format import AUTO, BY_ENDING, PRESETS
from cutthrough.config.log_target import read_target
from cutthrough.session.model.client cimport Client, Journal
from cutthrough.wire.http1 cimport Head

log = logging.getLogger("cutthrough")

cdef enum:
    BUFFER = 131072
    FLUSH_AT = 65536
    FLUSH_MS = 100
    REPORT_S = 10               # least interval between reports of dropped lines
    CLOSE_WAIT_MS = 200         # how long `close` waits for a slow sink


cdef class AccessLog(Journal):
    cdef char buffer[BUFFER]
    cdef size_t n
    cdef Line line
    cdef LogSink sink
    cdef bint scheduled, waiting, full
    cdef size_t full_lines          # dropped because the buffer was full
    cdef size_t unmade_lines        # dropped because there was no memory for their values
    cdef readonly unsigned long lines
    cdef object loop, reported_at
    cdef size_t reported            # dropped lines in the reports so far
    cdef size_t reported_unmade     # … of these, for want of memory

    def __init__(self, loop, target, format, worker=0, required=True):
        """`target`: the option's value, or a descriptor, which the log then owns;
        `format`: a preset, "auto" or a format with %-codes. Raises ValueError for a malformed
        value, and OSError if the target cannot be opened and `required`."""
        self.loop = loop
        if format == AUTO:
            format = choose_format(target)
        self.line = JsonLine(worker) if format == "json" else FormatLine(format, worker)
        self.wants_fields = self.line.wants_fields
        heading = self.line.heading
        self.sink = (FileSink(target, heading=heading) if isinstance(target, int)
                     else open_sink(read_target(target), worker, required, heading))
        if self.sink.error_text is not None:
            log.error("access log: cannot open %s, will retry: %s", target,
                      self.sink.error_text)
        self.reported_at = -REPORT_S

    @property
    def dropped(self):
        """Lines that were not written, and never will be."""
        return self.full_lines + self.unmade_lines + self.sink.lost

    @property
    def remembered(self):
        """Number of heads with fields kept for their line."""
        return self.line.remembered

    def reopen(self):
        """Reopens the target, because a file may have been moved away. If that fails, the
        log continues with the old one."""
        self.flush()
        self._stop_polling()
        try:
            self.sink.reopen()
        except OSError as error:
            log.error("access log: cannot reopen %s, still writing to the old one: %s",
                      error.filename, error.strerror or error)
        self.flush()

    def flush(self):
        """Writes as much of the buffer as the sink takes without waiting."""
        cdef size_t done
        if self.n == 0:
            return
        done = self.sink.send(self.buffer, self.n)
        self.full = done == 0
        if done:
            self.n -= done
            memmove(self.buffer, self.buffer + done, self.n)
        if self.n and self.sink.can_wait and self.sink.error_text is None:
            self._poll_for_room()
        elif self.waiting:
            self._stop_polling()

    def close(self):
        """Writes what the sink takes, with a short wait if it is slow; drops the rest."""
        cdef size_t before
        if self.sink.number < 0:
            return
        self.flush()
        self.flush()                        # the first one may have had no heading's lock
        while self.n and self.sink.can_wait and self.sink.wait(CLOSE_WAIT_MS):
            before = self.n
            self.flush()
            if self.n == before:
                break
        self.full_lines += self._count()
        self.n = 0
        self._report_dropped(-REPORT_S)
        self._stop_polling()
        self.sink.close()

    cdef size_t _count(self):
        """Returns the number of lines in the buffer."""
        cdef size_t count = 0
        cdef size_t at = 0
        cdef uint32_t length
        while at < self.n:
            if self.sink.is_framed:
                memcpy(&length, self.buffer + at, 4)
                at += 4 + length
                count += 1
            else:
                count += self.buffer[at] == b"\n"
                at += 1
        return count

    def _poll_for_room(self):
        """Has the loop call back when the sink takes more."""
        if not self.waiting:
            self.waiting = True
            self.loop.add_writer(self.sink.number, self._on_room)

    def _on_room(self):
        """Flushes, because poll(2) reports room. If there is none in fact (ENOBUFS), poll
        would report it in every turn of the loop; then the timer makes the next try."""
        self.flush()
        if self.full:
            self._stop_polling()

    def _stop_polling(self):
        if self.waiting:
            self.waiting = False
            self.loop.remove_writer(self.sink.number)

    def _report_dropped(self, now):
        """Logs the number of dropped lines if it has grown; `now` < 0: at once."""
        cdef size_t dropped = self.dropped
        if dropped > self.reported and (now < 0 or now - self.reported_at >= REPORT_S):
            log.warning("access log: %d lines dropped (%d in total): %s",
                        dropped - self.reported, dropped, self.sink.error_text or (
                            "out of memory" if self.unmade_lines > self.reported_unmade else
                            "the target does not accept lines fast enough"))
            self.reported, self.reported_unmade = dropped, self.unmade_lines
            self.reported_at = now

    def _flush_later(self):
        self.scheduled = False
        if self.sink.number < 0:
            return
        self.flush()
        self._report_dropped(self.loop.time())
        if self.n:
            self._schedule()

    def _schedule(self):
        try:
            self.loop.call_later(FLUSH_MS / 1000.0, self._flush_later)
        except MemoryError:                 # for a timer: the next line tries again
            return
        self.scheduled = True

    cdef int write(self, Client c, int outcome) except -1:
        if not self.scheduled:
            self._schedule()
        if self.n > FLUSH_AT:
            if not self.full:               # else the timer flushes, not every line
                self.flush()
            if self.n > BUFFER - MOST_MESSAGE:
                self.full_lines += 1
                return self.line.skip(c)
        try:
            return self._put(c, outcome)
        except MemoryError:                 # for a value: its request goes on as ever
            self.unmade_lines += 1
        return 0

    cdef int _put(self, Client c, int outcome) except -1:
        cdef char *start = self.buffer + self.n
        cdef char *end = start
        cdef uint32_t length
        if self.sink.is_framed:
            end = self.sink.put_head(start + 4, c, outcome)
        end = self.line.put(end, c, outcome, end + self.sink.most_line - 1)
        if self.sink.ends_lines:
            end[0] = b"\n"
            end += 1
        if self.sink.is_framed:
            length = <uint32_t>(end - start - 4)
            memcpy(start, &length, 4)
        self.n = end - self.buffer
        self.lines += 1
        return 0

    cdef int note_head(self, Client c, const Head *head, const char *data) except -1:
        return self.line.note_head(c, head, data)


def choose_format(target):
    """Chooses a format by the end of a file's name; else squid's, or lines for people if the target is
    a terminal, without colours if the variable NO_COLOR (no-color.org) says so, or if the terminal has
    none."""
    if (ending := target.rpartition(".")[2]) in BY_ENDING:
        return BY_ENDING[ending]
    if target != "-" or not os.isatty(1):
        return "squid"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return PRESETS["terminal"].replace("%ct::color", "").replace("%ct::uncolor", "")
    return "terminal"
