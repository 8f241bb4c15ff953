"""Packets with descriptors, over a SOCK_SEQPACKET socket.

Not socket.send_fds and socket.recv_fds: those of Python 3.11 ignore their flags.
"""

import os
import socket
from array import array
from collections.abc import Iterable
from typing import Any

import msgspec


def send_packet(sock: socket.socket, packet: bytes, fds: Iterable[int]) -> None:
    """Sends it without waiting, whole or not at all. Raises BlockingIOError if the
    socket is full, OSError if it cannot send."""
    sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))],
                 socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def receive_packet(sock: socket.socket, n: int, most_fds: int
                   ) -> tuple[bytes, list[int]]:
    """Returns the next packet, of `n` bytes at most, and its descriptors, which no
    child inherits. Raises OSError as recvmsg(2) does."""
    packet, control, _, _ = sock.recvmsg(
        n, socket.CMSG_SPACE(most_fds * 4), socket.MSG_CMSG_CLOEXEC)
    return packet, descriptors_in(control)


def in_memory(value: Any) -> int:
    """Returns a descriptor of memory that holds `value` as JSON; the caller owns it."""
    fd = os.memfd_create("cutthrough-message", os.MFD_CLOEXEC)
    left = msgspec.json.encode(value)
    while left:
        left = left[os.write(fd, left):]
    return fd


def descriptors_in(control: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came with a packet, from recvmsg(2)'s control messages."""
    fds: list[int] = []
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += memoryview(data[:len(data) // 4 * 4]).cast("i")
    return fds
