# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops of bench/micro/prints.py. Each runs `n` times and returns the seconds of CPU that took:
on a busy machine the clock on the wall had up to twice as many."""

from time import thread_time

from libc.string cimport memset
from cutthrough.http2.fingerprint cimport MOST_PRINT, Print, note_pseudo, read_frames, write_print
from cutthrough.session.model.entrance cimport Entrance
from cutthrough.session.model.prints cimport Prints
from cutthrough.wire.syn cimport MOST_SIGNATURE, write_signature


def read_hellos(bytes data, int wanted, bint changes, long n):
    """`data`: a handshake message."""
    cdef bytearray copy = bytearray(data)
    cdef char *at = copy
    cdef size_t length = len(data)
    cdef size_t cipher = 4 + 34 + 1 + <unsigned char>at[38] + 2 + 4     # the third one
    cdef Prints prints
    cdef long i
    began = thread_time()
    for i in range(n):
        if changes:
            at[cipher], at[cipher + 1] = <char>(i >> 8), <char>i
        prints = Prints.__new__(Prints)
        prints.read_hello(at, length, wanted)
    took = thread_time() - began
    assert (prints.ja4 is not None) == (wanted & 1 != 0)
    return took


def read_clients(list hellos, int wanted, bint changes, long n):
    """As `read_hellos`, of different clients in turn."""
    cdef list copies = [bytearray(data) for data in hellos]
    cdef bytearray copy
    cdef char *at
    cdef size_t cipher
    cdef Prints prints
    cdef Py_ssize_t count = len(copies)
    cdef long i
    began = thread_time()
    for i in range(n):
        copy = <bytearray>copies[i % count]
        at = copy
        if changes:
            cipher = 4 + 34 + 1 + <unsigned char>at[38] + 2 + 4
            at[cipher], at[cipher + 1] = <char>(i >> 8), <char>i
        prints = Prints.__new__(Prints)
        prints.read_hello(at, len(copy), wanted)
    took = thread_time() - began
    assert (prints.ja4 is not None) == (wanted & 1 != 0)
    return took


def copy_entrances(long n):
    cdef Entrance entrance = Entrance()
    cdef Entrance other
    cdef long _i
    began = thread_time()
    for _i in range(n):
        other = entrance.copy()
        other.prints = Prints.__new__(Prints)
    return thread_time() - began


def read_syns(bytes packet, long n):
    """`packet`: the headers of a SYN."""
    cdef char[MOST_SIGNATURE] out
    cdef size_t written = 0
    cdef bytes text = b""
    cdef long _i
    began = thread_time()
    for _i in range(n):
        written = write_signature(out, packet, len(packet))
        text = out[:written]
    took = thread_time() - began
    assert text == b"4:64+0:0:1460:mss*44,7:mss,sok,ts,nop,ws:df,id+:0", text
    return took


def read_http2(bytes data, long n):
    cdef char[MOST_PRINT] out
    cdef Print print
    cdef char *at = data
    cdef size_t length = len(data)
    cdef size_t written = 0
    cdef bytes text = b""
    cdef long _i
    began = thread_time()
    for _i in range(n):
        memset(&print, 0, sizeof(Print))
        print.preface = 24
        read_frames(&print, at, length)
        note_pseudo(&print, 1, b":method", 7)
        note_pseudo(&print, 1, b":authority", 10)
        note_pseudo(&print, 1, b":scheme", 7)
        note_pseudo(&print, 1, b":path", 5)
        written = write_print(out, &print)
        text = out[:written]
    took = thread_time() - began
    assert text == b"1:65536;2:0;4:6291456;6:262144|15663105|0|m,a,s,p", text
    return took
