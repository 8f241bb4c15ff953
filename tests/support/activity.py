"""An activity tracker that prints its events, and what it has printed."""

import json
from typing import Any

from tests.support.proxy import Proxy
from tests.support.wait import wait_until

HOOK = 'activity_hook = "watched:Tracker"\n'
TRACKER = """
    import json

    import msgspec

    def say(hook, event, *more):
        print(json.dumps([hook, msgspec.to_builtins(event), *more]), flush=True)

    class Tracker:
        def on_connect(self, connection):
            say("on_connect", connection)

        async def on_client_tls(self, connection):
            say("on_client_tls", connection)

        def on_disconnect(self, connection):
            say("on_disconnect", connection)

        async def on_request(self, exchange):
            say("on_request", exchange)

        def on_parent_failed(self, exchange):
            say("on_parent_failed", exchange)

        def on_origin(self, exchange):
            say("on_origin", exchange)

        def on_origin_tls(self, exchange):
            say("on_origin_tls", exchange)

        def on_response(self, exchange):
            say("on_response", exchange)

        def on_bytes(self, exchange, up, down):
            say("on_bytes", exchange, up, down)

        async def on_end(self, exchange):
            say("on_end", exchange)
"""


def events(proxy: Proxy, hook: str = "") -> list[list[Any]]:
    """The calls of the tracker: function, connection or exchange, and bytes. `hook`: of
    this function alone."""
    lines = (proxy.log_path.parent / "stdout").read_text().splitlines()
    return [event for event in map(json.loads, lines) if hook in ("", event[0])]


def wait_events(proxy: Proxy, hook: str, n: int = 1) -> list[dict[str, Any]]:
    """The first `n` connections or exchanges of this function."""
    wait_until(lambda: len(events(proxy, hook)) >= n, f"{n} {hook}")
    return [event[1] for event in events(proxy, hook)[:n]]
