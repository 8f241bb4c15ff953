"""An activity tracker: connections, and the bytes of each user, as they pass.

    PYTHONPATH=docs/examples cutthrough serve --activity-hook tracker:Tracker
"""

from collections import Counter

import cutthrough


class Tracker:
    def __init__(self) -> None:
        self.open = 0
        self.bytes: Counter[str | None] = Counter()

    def on_connect(self, connection: cutthrough.Connection) -> None:
        self.open += 1

    def on_disconnect(self, connection: cutthrough.Connection) -> None:
        self.open -= 1

    def on_origin(self, exchange: cutthrough.Exchange) -> None:
        print(exchange.id, exchange.host, "is", exchange.peer, exchange.connect_ms)

    def on_bytes(self, exchange: cutthrough.Exchange, up: int, down: int) -> None:
        self.bytes[exchange.user] += up + down

    async def on_end(self, exchange: cutthrough.Exchange) -> None:
        print(exchange.id, exchange.reason, self.bytes[exchange.user], "bytes",
              self.open, "connections", flush=True)
