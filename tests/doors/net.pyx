# cython: language_level=3
"""Doors to cutthrough.net: a timer wheel and a pump, without a loop."""

import select

from libc.stdint cimport INT64_MAX, int64_t
from cutthrough.net.pump cimport Pump
from cutthrough.net.relay cimport push, run_pump, start_pump, stop_pump
from cutthrough.net.linux cimport EPOLLIN, EPOLLOUT
from cutthrough.net.sends cimport begin_batch, end_batch, next_woken
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, CAN_WRITE, PEER_DONE, URGENT, half_close, note_events)
from cutthrough.net.timers cimport Timer, Wheel
from cutthrough.net.transport cimport (
    HANDSHAKE_DONE, KERNEL, Socket, drop_transport, open_transport, transport_of)


cdef class Alarms:
    """Named deadlines on a wheel of their own. Times are in ms."""
    cdef Wheel wheel
    cdef dict alarms
    cdef readonly list rung

    def __init__(self, int64_t now_ms=0):
        self.wheel = Wheel()
        self.wheel.on_expiry = ring
        self.wheel.advance(now_ms)
        self.alarms = {}
        self.rung = []

    def set(self, name, int64_t deadline_ms):
        cdef Alarm alarm = self.alarms.get(name)
        if alarm is None:
            alarm = self.alarms[name] = Alarm.__new__(Alarm)
            alarm.name = name
            alarm.alarms = self
        self.wheel.arm(&alarm.timer, deadline_ms)

    def cancel(self, name):
        self.wheel.disarm(&(<Alarm>self.alarms[name]).timer)

    def advance(self, int64_t now_ms):
        """Returns the names of the expired alarms, in order."""
        self.rung = []
        self.wheel.advance(now_ms)
        return self.rung

    def next_in(self, int64_t now_ms):
        return self.wheel.next_in_ms(now_ms)

    @property
    def armed(self):
        return self.wheel.armed


cdef class Alarm:
    cdef Timer timer
    cdef object name
    cdef Alarms alarms


cdef Alarm any_alarm = Alarm.__new__(Alarm)
cdef Py_ssize_t TIMER_AT = <char *>&any_alarm.timer - <char *><void *>any_alarm


cdef void ring(Timer *timer) noexcept:
    cdef Alarm alarm = <Alarm><void *>(<char *>timer - TIMER_AT)
    alarm.alarms.rung.append(alarm.name)


PUMPED = ("dry", "stuck", "again", "starved", "paced", "sending", "done", "eof",
          "source failed", "sink failed", "refused", "no room")


cdef class OneWay:
    """A pump between two non-blocking sockets, which stay their owner's."""
    cdef Pump pump
    cdef Socket source, sink

    def __init__(self, int source, int sink, int64_t left=-1, bint may_splice=True,
                 int64_t allowance=INT64_MAX, int transport=KERNEL, int context=0):
        """`transport`: the number of a transport to put above both sockets; `context`: one
        of its own."""
        self.source.fd = source
        self.sink.fd = sink
        if transport != KERNEL:
            open_transport(&self.source, transport, context, NULL)
            open_transport(&self.sink, transport, context, NULL)
        self.pump.may_splice = may_splice
        self.pump.allowance = allowance
        start_pump(&self.pump, &self.source, &self.sink, left)

    def run(self, bint readable=True, bint writable=True, bint broken=False,
            bint ended=False, bint urgent=False):
        """Runs one turn with this readiness added. Returns the name of its Pumped."""
        self.source.ready |= (CAN_READ if readable else 0) | (PEER_DONE if ended else 0) | (
            URGENT if urgent else 0)
        self.sink.ready |= (CAN_WRITE if writable else 0) | (BROKEN if broken else 0)
        return PUMPED[run_pump(&self.pump)]

    def shake(self):
        """One attempt at the handshakes of both sides. True: they are done, and no readiness
        is noted."""
        cdef bint done = True
        cdef Socket *s
        cdef int i
        for i in range(2):
            s = &self.sink if i else &self.source
            note_events(s, EPOLLIN | EPOLLOUT)
            done &= transport_of(s).handshake(s) == HANDSHAKE_DONE
        if done:
            self.source.ready = self.sink.ready = 0
        return done

    def push(self, bytes a, bytes b):
        """Pushes these bytes before the source's. False: not taken."""
        return push(&self.pump, a, len(a), b, len(b))

    def note(self):
        """Notes the readiness that the kernel reports now, as an event would."""
        cdef Socket *s
        cdef int i
        for i in range(2):
            s = &self.sink if i else &self.source
            polled = select.poll()
            polled.register(s.fd, select.POLLIN | select.POLLOUT)
            note_events(s, dict(polled.poll(0)).get(s.fd, 0))

    def half_close(self):
        half_close(&self.sink)

    def stop(self):
        stop_pump(&self.pump)
        drop_transport(&self.source)
        drop_transport(&self.sink)

    @property
    def moved(self):
        return self.pump.moved

    @property
    def spliced(self):
        return self.pump.spliced

    @property
    def error(self):
        return self.pump.error

    @property
    def allowance(self):
        return self.pump.allowance

    @allowance.setter
    def allowance(self, int64_t n):
        self.pump.allowance = n

    @property
    def held(self):
        """Bytes in the block, and bytes in the pipe (None: no pipe)."""
        if self.pump.is_piped:
            return 0, self.pump.held.pipe.held
        return (self.pump.held.block.end - self.pump.held.block.start
                if self.pump.held.block != NULL else 0), None


def begin(int events):
    """Begins a batch as the poller does."""
    begin_batch(events)


def end():
    """Ends the batch. Returns the descriptors of the sockets that are to be woken."""
    cdef Socket *s
    cdef list fds = []
    if end_batch():
        s = next_woken()
        while s != NULL:
            fds.append(s.fd)
            s = next_woken()
    return fds
