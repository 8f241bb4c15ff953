"""Supervisor and workers talk: a message that cannot be read ends nothing."""

import asyncio
import errno
import logging
import os
import socket

import pytest

from cutthrough.process import channel as channels
from cutthrough.process.channel import (
    Channel,
    Drain,
    Hello,
    Reopen,
    Watch,
    read_message,
)

BROKEN = (b"?", b"{}", b'{"type":"nothing"}', b'{"type":"drain","timeout":null}',
          b'{"type":"list","query":1,"selector":{"older":null}}', b"\xff\xfe",
          b"[" * 5000)


@pytest.mark.parametrize("packet", BROKEN, ids=lambda packet: ascii(packet)[:30])
async def test_a_message_that_cannot_be_read_is_logged_and_dropped(packet, caplog):
    """It was a traceback in the loop; a descriptor that came with it was then taken for
    the next message's."""
    channel, theirs = Channel.pair()
    heard = asyncio.Queue()
    inside, outside = os.pipe()
    channel.attach(heard.put_nowait)
    try:
        with theirs, caplog.at_level(logging.ERROR, "cutthrough"):
            socket.send_fds(theirs, [packet], [inside])
            socket.send_fds(theirs, [b'{"type":"watch","on":true}'], [outside])
            theirs.send(b'{"type":"drain","timeout":2.5}')
            theirs.send(b'{"type":"reopen"}')
            for message in (Watch(True), Drain(2.5), Reopen()):
                assert await heard.get() == message
            fd = channel.take_fd()
            assert os.fstat(fd).st_ino == os.fstat(outside).st_ino
            os.close(fd)
            with pytest.raises(OSError):
                channel.take_fd()
    finally:
        channel.close()
        os.close(inside)
        os.close(outside)
    (record,) = caplog.records
    assert "cannot be read" in record.getMessage() and record.exc_info is None


def test_descriptors_of_a_hello_have_the_receivers_numbers():
    with open(os.devnull) as first, open("/dev/zero") as second:
        one, two = first.fileno(), second.fileno()
        hello = Hello(
            slot=0, workers=1, generation=one, listeners=(two, one), numbers=(0, 1),
            counters=one, limits=one, known=one, tickets=one, checks=one, rings=one,
            wake=two, page=0, holder=0)
        ours, theirs = Channel.pair()
        other = Channel(theirs)
        try:
            assert not other.has_message
            assert ours.send(hello, hello.descriptors)
            assert other.has_message
            got = other.receive()
            here = got.renumbered(other.take_fds())
            kinds = [os.fstat(fd).st_rdev for fd in hello.descriptors]
            assert [os.fstat(fd).st_rdev for fd in here.descriptors] == kinds
            assert len({*here.descriptors, *hello.descriptors}) == 10 + 2
            with pytest.raises(OSError):
                got.renumbered(here.descriptors[1:])
            for fd in here.descriptors:
                os.close(fd)
        finally:
            ours.close()
            other.close()


def test_a_full_socket_delays_no_sender():
    """Before the loop had the socket, its sender waited for a reader: Python 3.11
    ignores the flags of `socket.send_fds`."""
    ours, theirs = Channel.pair()
    with theirs:
        while ours.send(Reopen()):
            pass
        ours.close()


def test_a_descriptor_that_comes_is_not_inherited():
    """A child process had it, too: Python 3.11 ignores the flags of
    `socket.recv_fds`."""
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    try:
        with open(os.devnull) as file:
            assert ours.send(Reopen(), [file.fileno()])
        assert other.receive() == Reopen()
        fd = other.take_fd()
        assert not os.get_inheritable(fd)
        os.close(fd)
    finally:
        ours.close()
        other.close()


class Scarce(socket.socket):
    """Its next `left` reads find no memory."""

    left = 0
    reads = 0

    def recvmsg(self, *args):
        self.reads += 1
        if self.left:
            self.left -= 1
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return super().recvmsg(*args)


def scarce_channel() -> tuple[Scarce, Channel, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock = Scarce(fileno=ours.detach())
    return sock, Channel(sock), theirs


async def test_a_message_without_memory_is_read_later(monkeypatch, caplog):
    """Each turn of the loop logged a traceback."""
    monkeypatch.setattr(channels, "AGAIN_S", 0.01)
    sock, channel, theirs = scarce_channel()
    heard, faults = asyncio.Queue(), []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, about: faults.append(about))
    channel.attach(heard.put_nowait)
    with theirs, caplog.at_level(logging.ERROR, "cutthrough"):
        for message in (b'{"type":"reopen"}', b'{"type":"stop"}'):
            sock.left = 3
            theirs.send(message)
            assert await heard.get() == read_message(message)
    assert await heard.get() is None
    assert [record.getMessage() for record in caplog.records] == [
        "a message cannot be read yet: [Errno 12] Cannot allocate memory"] * 2
    assert not faults
    channel.close()


async def test_the_rest_of_a_channel_without_memory_is_tried_once(caplog):
    """The supervisor read for ever what a worker had sent before its end."""
    sock, channel, theirs = scarce_channel()
    heard = []
    channel.attach(heard.append)
    theirs.send(b'{"type":"reopen"}')
    theirs.close()
    sock.left = 1000
    channel.read_rest()
    assert (sock.reads, heard) == (1, [])
    channel.close()
