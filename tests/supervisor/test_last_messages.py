"""What a process sent before it ended counts, in whatever order its end is noticed."""

import asyncio
import socket
import subprocess
import sys

import pytest

from cutthrough.process.channel import Channel, Cut, CutReport
from cutthrough.process.selector import Selector
from cutthrough.supervisor.children import Child, Slot
from cutthrough.supervisor.upgrade import Predecessor, Served, Successor

# The new program: it serves, asks for a cut, and prints the answer
SUCCESSOR = """
import msgspec
from cutthrough.process.channel import Cut
from cutthrough.process.selector import Selector
from cutthrough.supervisor.upgrade import ANSWER, ASK, SERVING, Predecessor

sock = Predecessor.find()._socket
sock.send(SERVING)
sock.send(ASK + msgspec.json.encode(Cut(7, Selector(all=True))))
print(sock.recv(4096)[len(ANSWER):].decode(), flush=True)
"""


@pytest.fixture
def ended() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


async def test_the_answer_of_a_worker_that_has_ended_counts(ended):
    """It was lost if the supervisor saw SIGCHLD first, so fewer connections were
    reported as cut than were."""
    child = Child(Slot(0), 0, 1, 0.0)
    child.channel, theirs = Channel.pair()
    messages = []
    child.channel.attach(messages.append)
    with theirs:
        theirs.send(b'{"type":"was_cut","query":3,"count":301,"moves":2}')
        theirs.send(b'{"type":"gave","given":299,"stayed":0}')
    child.process = ended
    assert child.on_reaped(0) == 0
    assert messages[0] == CutReport(3, 301, 2) and len(messages) == 3
    assert messages[-1] is None, "the end of file"


async def test_a_message_that_fails_does_not_hide_the_others(caplog):
    channel, theirs = Channel.pair()
    messages = []

    def on_message(message):
        messages.append(message)
        if len(messages) == 1:
            raise OSError("no descriptor")

    channel.attach(on_message)
    with theirs:
        theirs.send(b'{"type":"reopen"}')
        theirs.send(b'{"type":"reopen"}')
    channel.read_rest()
    channel.close()
    assert len(messages) == 3
    assert "was not handled" in caplog.text


async def test_a_program_that_drains_answers_before_it_ends(monkeypatch, capfd):
    """The new program's query met the end of the old one's last worker; the old one
    ended without an answer, though it had cut its connections."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", SUCCESSOR])
    begun, may_end, serves = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(question):
        assert question == Cut(7, Selector(all=True))
        begun.set()
        await may_end.wait()
        return CutReport(7, 299), -1

    successor = Successor(
        [], False, serves.set, pytest.fail, answer, {},
        Served(listeners=(), demonstration=False, policy=False))
    try:
        await asyncio.wait_for(begun.wait(), 30)
        assert serves.is_set()
        ending = asyncio.create_task(successor.finish_answers())
        await asyncio.sleep(0)
        assert not ending.done()
        may_end.set()
        await ending
    finally:
        successor.close()
    assert await asyncio.to_thread(successor.process.wait, 30) == 0
    assert '"count":299' in capfd.readouterr().out


@pytest.mark.parametrize("unread", [b"", b"take"])
def test_a_program_whose_predecessor_has_ended_says_so(unread):
    """Its reason was "Broken pipe"."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        if unread:                           # then the end is a reset
            ours.send(unread)
        theirs.close()
        with pytest.raises(ConnectionAbortedError, match="previous program has exited"):
            Predecessor(ours).take_listeners()
