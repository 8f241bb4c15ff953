"""Where a tunnel counts that changes its worker: its client's row, its user's."""

from cutthrough.policy.source import Limits, Policy
from cutthrough.worker.worker import Worker
from tests.support.origin import Origin
from tests.support.workers import Pair, pair, talk, until


def test_a_named_client_s_connection_stays_its_proxy_s(run):
    """It was counted as the client's that X-Forwarded-For named, and the proxy's place
    was never given back."""
    def places(worker: Worker) -> tuple[int, int]:
        read = worker.parts.ledger.read()
        return read["of_clients"], read["clients"]

    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, 3, "X-Forwarded-For: 198.51.100.9")
        workers.new.context.start_draining()
        await workers.move()
        assert workers.told == [(0, 3)] and places(workers.old) == (3, 1)
        ours, theirs = pair()
        workers.give(ours, 2)
        workers.take(theirs, workers.third)
        await until(lambda: workers.told[1:] and not workers.old.in_transit)
        assert workers.told[1] == (3, 0) and places(workers.old) == (3, 1)
        for client in clients:
            await talk(client)
            client.close()
        await until(lambda: workers.third.context.live == 0)
        assert workers.sum() == (0, 0, 0)

    run(main, address_floor="off", connect_ports="any", listen=[], listeners=[
        {"address": "127.0.0.1:0", "forwarded_from": ["127.0.0.1"]}])


def test_a_taker_s_limits_say_where_a_tunnel_counts(run):
    """It stayed in the row that it came with. A giver that drains gets no more reloads,
    so the limits may be others."""
    async def main(workers: Pair, origin: Origin) -> None:
        clients = await workers.open(origin, 3)
        assert workers.sum() == (3, 3, 6)
        await workers.move()
        assert workers.told == [(3, 0)] and workers.sum() == (3, 3, 0)
        for client in clients:
            await talk(client)

    run(main, policy=Policy(limits={"default": Limits(tunnels=100)}), newer=Policy())
