"""A tunnel that cannot be handed over stays in its worker, and goes on."""

import msgspec
import pytest

from cutthrough.session.handover_record import Answer
from cutthrough.worker import handover
from tests.support.origin import Origin
from tests.support.workers import Pair, pair, talk, until


@pytest.mark.parametrize("where", ["pack", "send_packet"])
def test_a_tunnel_that_cannot_be_sent_goes_on_and_the_others_move(
        run, monkeypatch, where):
    """It stayed frozen for ever, and the hand-over with it."""
    real, calls = getattr(handover, where), []

    def fail_once(*words):
        calls.append(words)
        if len(calls) == (1 if where == "pack" else 2):     # Answer comes first
            raise ValueError("no such record")
        return real(*words)

    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, 3)
        monkeypatch.setattr(handover, where, fail_once)
        await workers.move()
        assert (workers.old.context.live, workers.new.context.live) == (1, 2)
        assert workers.told[0] == (2, 1)
        for client in clients:
            await talk(client)

    run(main)


def test_a_giver_with_nothing_in_transit_releases_its_taker_at_once(run):
    """Never: the taker's page was lent until the giver's process had ended."""
    async def main(workers: Pair, origin: Origin) -> None:
        (ours, theirs), (after, heir) = pair(), pair()
        with theirs, heir:
            theirs.send(msgspec.msgpack.encode(Answer([], [])))
            workers.give(ours).on_readable()
            assert workers.released == []
            workers.give(after, 2)           # supersedes it
            assert workers.released == [(1, 0)]
        await until(lambda: len(workers.released) > 1)
        assert workers.released == [(1, 0), (2, 0)], "each once"

    run(main)


@pytest.mark.parametrize("end", ["dies", "refuses", "takes"])
def test_a_taker_is_released_after_the_last_tunnel_in_transit(run, end):
    """The giver takes back counts on its page until then."""
    async def main(workers: Pair, origin: Origin) -> None:
        await workers.open(origin, 2)
        (ours, theirs), (after, heir) = pair(), pair()
        with heir:
            with theirs:
                theirs.send(msgspec.msgpack.encode(Answer([], [])))
                workers.give(ours).on_readable()
                assert workers.old.in_transit == 2
                workers.give(after, 2)       # supersedes it
                for number in range(2 if end != "dies" else 0):
                    assert workers.released == []
                    answer = ([number], []) if end == "takes" else ([], [number])
                    theirs.send(msgspec.msgpack.encode(Answer(*answer)))
                    await until(lambda n=number: workers.old.in_transit == 1 - n)
            await until(lambda: workers.released)
            assert workers.released == [(1, 0)]
        workers.old.parts.ledger.reap(1)
        held = 0 if end == "takes" else 2
        assert workers.sum() == (held, held, 2 * held)

    run(main)


def test_a_giver_does_not_wait_for_room_in_its_socket(run):
    """It waited until its taker read, and served nobody meanwhile: Python 3.11 ignores
    the flags of `socket.send_fds`."""
    async def main(workers: Pair, origin: Origin) -> None:
        ours, theirs = pair()
        with theirs:
            giver = workers.give(ours)
            with pytest.raises(BlockingIOError):
                while True:
                    giver.try_send(bytes(65536))
            giver.close()

    run(main)
