"""A tunnel that cannot be handed over stays in its worker, and goes on."""

import pytest

from cutthrough.worker import handover
from tests.support.origin import Origin
from tests.support.workers import Pair, pair, talk


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
