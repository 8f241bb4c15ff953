"""The hand-over of tunnels from one worker to another: the protocol over their socket.

    taker   Answer(nothing)                 it is ready
    giver   Tunnel, with its descriptors    frozen from now on; a few at a time
    taker   Answer(taken, refused)          sent before it moves a byte of a taken one
    giver   Done                            end of a round, or of the hand-over

The socket is one SOCK_SEQPACKET pair: a tunnel is one packet, whole or not at all, and
a packet that was sent arrives even if its sender dies. So each tunnel belongs to one
worker at every moment. After its packet was sent, the giver moves no byte of a tunnel.
It takes the tunnel back if the taker refuses it, or is gone without having taken it:
before that it reads all answers of the taker. If the giver dies, the taker keeps the
tunnels that it received, because no other process has them.
"""

import asyncio
import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cutthrough.process.packets import descriptors_in, send_packet
from cutthrough.session.handover import (
    Parcel,
    end_denied,
    pack,
    recount,
    tunnels,
    unpack,
)
from cutthrough.session.handover_record import Answer, Done, Tunnel
from cutthrough.session.model.client import Client
from cutthrough.worker.worker import Worker

log = logging.getLogger("cutthrough")

# Tunnels in transit at a time. Each one is frozen until those before it are taken, at
# some 0.1 ms each; with a smaller window the two sides would wait for each other
WINDOW = 16
# Two full blocks, and the encoding around them
PACKET_BYTES = 262144
# Two sockets, and a pipe for each direction
MOST_FDS = 6
# How often to look for tunnels that have begun since the last round
LOOK_AGAIN_S = 0.1


class HandoverSocket:
    """One end of the socket, which it owns. The loop calls `on_readable`, which must
    read until nothing is left: libuv reports a socket with an error only once."""

    def __init__(self, worker: Worker, sock: socket.socket) -> None:
        self._worker = worker
        self._socket = sock
        self._buffer = bytearray(PACKET_BYTES)
        self._loop = asyncio.get_running_loop()
        # Up to net.core.wmem_max; its default has room for one such packet
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_BYTES)
        self._loop.add_reader(sock.fileno(), self.on_readable)
        worker.at_end.append(self.close)

    def on_readable(self) -> None:
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def try_send(self, message: Any, fds: Iterable[int] = ()) -> None:
        """Raises BlockingIOError if the socket is full, OSError if it cannot send."""
        send_packet(self._socket, msgspec.msgpack.encode(message), fds)

    def receive(self) -> tuple[memoryview, list[int]] | None:
        """Returns the next packet and its descriptors, which the caller owns; None: no
        more packets will come. The packet is valid until the next call. Raises
        BlockingIOError if no packet is there yet."""
        while True:
            try:
                n, control, _, _ = self._socket.recvmsg_into(
                    [self._buffer], socket.CMSG_SPACE(MOST_FDS * 4),
                    socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
                break
            except ConnectionResetError:
                continue        # the peer died with packets unread: reported once
        return (memoryview(self._buffer)[:n], descriptors_in(control)) if n else None

    def close(self) -> None:
        """Idempotent."""
        if self.is_open:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            with contextlib.suppress(ValueError):
                self._worker.at_end.remove(self.close)


class Giver(HandoverSocket):
    """Gives `worker`'s tunnels away, present and future ones, until it is closed.

    A worker has one active giver. A new one supersedes it, because its taker is being
    replaced itself: the old giver sends nothing more, and only reads the answers to
    what it has sent. Nothing waits for these, because the taker may hang.

    `holder`: the taker's number on the page of limits; -1: it has another page.
    `on_round` is called after each round with the number of tunnels given in all, and
    of those kept; `on_end` is called once, when it takes no tunnel back any more.
    """

    def __init__(self, worker: Worker, sock: socket.socket, holder: int,
                 on_round: Callable[[int, int], object],
                 on_end: Callable[[], object] = lambda: None) -> None:
        super().__init__(worker, sock)
        self._holder = holder
        self._on_round, self._on_end = on_round, on_end
        self._in_transit: dict[int, tuple[Client, Parcel]] = {}     # sent, not answered
        self._refused: set[Client] = set()   # they stay here
        self._refused_in_row = 0
        self._queue: list[Client] = []       # the rest of this round, in reverse order
        self._in_round = False
        self._may_give = True                # the taker has refused nothing yet
        self._number = self._moved = 0
        self._timer: asyncio.TimerHandle | None = None
        before, worker.giver = worker.giver, self
        if before is not None:
            before.supersede()

    def supersede(self) -> None:
        """Stops giving: another giver gives from now on."""
        self._may_give = False
        self._queue.clear()
        self._send_more()

    def on_readable(self) -> None:
        try:
            while (packet := self.receive()) is not None:
                answer = msgspec.msgpack.decode(packet[0], type=Answer)
                self._settle(answer.taken, answer.refused)
        except BlockingIOError:
            pass
        else:
            self._may_give = False
            self._settle(refused=list(self._in_transit))
        if self._in_round or not self._may_give:
            self._send_more()
        else:
            self._begin_round()              # the first answer: the taker is ready

    def _settle(self, taken: Iterable[int] = (), refused: Iterable[int] = ()) -> None:
        for number in taken:
            _, parcel = self._in_transit.pop(number)
            parcel.forget()
            self._worker.in_transit -= 1
            self._worker.given_away += 1
            self._moved += 1
            self._refused_in_row = 0
        for number in refused:
            client, parcel = self._in_transit.pop(number)
            parcel.restore()
            self._worker.in_transit -= 1
            self._refused.add(client)
            self._refused_in_row += 1
        if self._refused_in_row >= WINDOW:
            self._may_give = False           # it would refuse the others as well

    def _begin_round(self) -> None:
        """Begins a round."""
        self._timer = None
        self._queue = [client for client in tunnels(self._worker.context)[::-1]
                       if client not in self._refused]
        self._in_round = bool(self._queue)
        if self._in_round:
            self._send_more()
        else:
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._begin_round)

    def _send_more(self) -> None:
        try:
            while self._queue and self._may_give and len(self._in_transit) < WINDOW:
                try:
                    self._give(self._queue[-1])
                except OSError:
                    raise
                except Exception:            # of this tunnel: the others are given
                    log.exception("a tunnel cannot be handed over")
                self._queue.pop()
        except OSError as error:
            # If the socket is full, the next answer makes room. Else the taker is gone,
            # a packet is too large for the buffer, or too many descriptors are in
            # transit (unix(7)): the remaining tunnels stay
            if not (isinstance(error, BlockingIOError) and self._in_transit):
                self._may_give = False
        if not self._in_transit:
            self._end_round()

    def _give(self, client: Client) -> None:
        parcel = pack(client, self._number, self._worker.slot, self._holder)
        if parcel is None:
            return                           # the tunnel has ended meanwhile
        try:
            self.try_send(parcel.record, parcel.fds)
        except BaseException:
            parcel.restore()                 # else it is frozen for ever
            raise
        self._in_transit[self._number] = client, parcel
        self._number += 1
        self._worker.in_transit += 1

    def _end_round(self) -> None:
        if self._in_round:
            self._on_round(self._moved, len(tunnels(self._worker.context)))
            with contextlib.suppress(OSError):
                self.try_send(Done(last=False))
        self._in_round = False
        self._queue.clear()
        if self._may_give:
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._begin_round)
        else:
            self.close()

    def close(self) -> None:
        """Forgets tunnels that were sent and not answered: the taker has them, or is
        gone. It may still refuse some, so no last Done is sent then, and the taker
        recounts."""
        if not self.is_open:
            return
        if self._timer is not None:
            self._timer.cancel()
        is_last = not self._in_transit
        for _, parcel in self._in_transit.values():
            parcel.forget()
            self._worker.in_transit -= 1
        self._in_transit.clear()
        if self._worker.giver is self:
            self._worker.giver = None
        if is_last:
            with contextlib.suppress(OSError):
                self.try_send(Done(last=True))
        super().close()
        self._on_end()


class Taker(HandoverSocket):
    """Takes tunnels for `worker`. `on_round` is called after each of the giver's rounds
    with the time that each tunnel was frozen, in microseconds."""

    def __init__(self, worker: Worker, sock: socket.socket,
                 on_round: Callable[[list[int]], None]) -> None:
        super().__init__(worker, sock)
        self._on_round = on_round
        self._pauses: list[int] = []
        self._was_last = False
        worker.takers.append(self)
        self._answer(Answer([], []))

    def on_readable(self) -> None:
        """Takes the tunnels that have come, at most WINDOW, and answers. They are in
        the epoll set before the answer is sent, but the set is not polled until this
        returns, so none moves a byte before."""
        answer = Answer([], [])
        begun: list[int] = []
        denied: list[Client] = []
        is_over = False
        while True:
            try:
                packet = self.receive()
            except BlockingIOError:
                break
            message = self._read(*packet) if packet is not None else None
            if packet is None or message is None:
                is_over = True
                break
            if isinstance(message, Done):
                self._was_last = message.last
                self._report()
                continue
            try:
                client, passes = unpack(self._worker.context, message, packet[1])
            except Exception as error:
                log.warning("cannot take a tunnel over, its worker keeps it: %s", error)
                answer.refused.append(message.number)
                continue
            answer.taken.append(message.number)
            begun.append(message.frozen_us)
            if not passes:
                denied.append(client)
        if answer.taken or answer.refused:
            self._answer(answer)
        now_us = time.monotonic_ns() // 1000
        self._pauses += [now_us - at_us for at_us in begun]
        for client in denied:
            end_denied(client)
        if is_over:
            self._end()

    def _read(self, data: memoryview, fds: list[int]) -> Tunnel | Done | None:
        """Returns None for a message that cannot be decoded, of another version."""
        try:
            message: Tunnel | Done = msgspec.msgpack.decode(data, type=Tunnel | Done)
        except msgspec.DecodeError:
            for fd in fds:
                os.close(fd)
            return None
        return message

    def _answer(self, answer: Answer) -> None:
        while True:
            try:
                self.try_send(answer)
                return
            except BlockingIOError:          # rare: there is room for thousands
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                poll.poll()
            except OSError:
                return                       # the giver is gone: the tunnels are ours

    def _report(self) -> None:
        if self._pauses:
            self._on_round(self._pauses)
            self._pauses = []

    def _end(self) -> None:
        self._report()
        self.close()
        if not self._was_last:
            for other in self._worker.takers[:]:
                if other.is_open:            # on_readable may have closed others
                    other.on_readable()      # received tunnels are ours, and counted
            recount(self._worker.context)

    def close(self) -> None:
        if self.is_open:
            self._worker.takers.remove(self)
        super().close()
