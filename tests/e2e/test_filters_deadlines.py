"""While a function of a filter works, its budget counts, and no deadline of a peer."""

import pytest

pytestmark = pytest.mark.any_loop

SLOW = """
    import asyncio

    class Head:
        async def on_response_head(self, flow):
            await asyncio.sleep(1)      # three times the deadline

    class Up:
        async def on_request_body(self, flow, body):
            await asyncio.sleep(1)

    class Down:
        async def on_response_body(self, flow, body):
            await asyncio.sleep(1)

    class Pieces:
        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                await asyncio.sleep(1)
                yield piece
"""
PLACES = [("Head", "response_timeout"), ("Up", "body_timeout"),
          ("Down", "idle_timeout"), ("Pieces", "idle_timeout")]


@pytest.fixture
def start_slow(start_policy):
    def run(name: str, budget: str, deadline: str):
        return start_policy(
            f'[filters.slow]\ncode = "slow:{name}"\nbudget = "{budget}"\n'
            '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
            'filters = ["slow"]', f'{deadline} = "300ms"', modules={"slow": SLOW})
    return run


@pytest.mark.parametrize(("name", "deadline"), PLACES)
def test_a_filter_within_its_budget_is_no_peer_s_silence(
        start_slow, make_origin, dial, name, deadline):
    """A client was told 504 `response_timeout`, or 408, or was cut."""
    proxy, origin = start_slow(name, "30s", deadline), make_origin()
    reply = dial(proxy).ask("POST", origin.url(), "Content-Length: 2", body=b"hi")
    assert (reply.status, reply.body) == (200, b"ok")
    assert proxy.wait_log(1)[0]["reason"] == "ok"


@pytest.mark.parametrize(("name", "deadline"), PLACES[:2])
def test_a_filter_beyond_its_budget_has_its_own_word(
        start_slow, make_origin, dial, name, deadline):
    proxy, origin = start_slow(name, "600ms", deadline), make_origin()
    reply = dial(proxy).ask("POST", origin.url(), "Content-Length: 2", body=b"hi")
    assert reply.status == 504
    assert proxy.wait_log(1)[0]["reason"] == "filter_timeout"
