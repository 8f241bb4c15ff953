# cython: language_level=3
"""Doors to cutthrough.net: a timer wheel without a loop."""

from libc.stdint cimport int64_t
from cutthrough.net.timers cimport Timer, Wheel


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
            alarm.timer.owner = <void *>alarm
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


cdef void ring(void *owner) noexcept:
    cdef Alarm alarm = <Alarm>owner
    alarm.alarms.rung.append(alarm.name)
