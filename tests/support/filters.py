"""The module of filters that tests run in a worker, and a proxy with some of them."""

import pytest

FILTERS = """
    import asyncio
    import sys
    import time

    class Nothing:
        async def on_request_head(self, flow):
            pass

        async def on_response_head(self, flow):
            pass

    class Created:
        async def on_request_head(self, flow):
            flow.respond(201, b"here")

    class Change:
        async def on_request_head(self, flow):
            assert flow.user == "user" and flow.client == "127.0.0.1"
            flow.request.headers["X-Added"] = "by filter"
            del flow.request.headers["X-Secret"]
            flow.request.path = flow.request.path.replace("/old", "/new")

        async def on_response_head(self, flow):
            flow.response.headers["X-Seen"] = "yes"
            if flow.response.status == 200:
                flow.response.status = 203

    class Move:
        async def on_request_head(self, flow):
            flow.request.host = flow.request.path.strip("/")

    class MoveLate:
        async def on_request_body(self, flow, body):
            flow.request.port = flow.request.port - 1

    class Swell:
        async def on_request_head(self, flow):
            if flow.request.path == "/up":
                for n in range(40):
                    flow.request.headers[f"X-{n}"] = "x" * 8000

        async def on_response_head(self, flow):
            if flow.request.path == "/down":
                for n in range(40):
                    flow.response.headers[f"X-{n}"] = "x" * 8000
            elif flow.request.path == "/respond":
                flow.respond(200, b"", {"X": "x" * 300_000})

    class Local:
        async def on_request_head(self, flow):
            if flow.request.path == "/local":
                flow.respond(200, b"x" * 300_000, {"Content-Type": "text/plain"})

    class Refuse:
        async def on_response_head(self, flow):
            flow.refuse("nothing from here, " + flow.user)

    class Replace:
        async def on_response_head(self, flow):
            flow.respond(404, b"not here")

    class Upper:
        async def on_request_body(self, flow, body):
            return body.upper()

        async def on_response_body(self, flow, body):
            return body.upper()

    class Pieces:
        async def on_request_body(self, flow, pieces):
            async for piece in pieces:
                yield piece.upper()

        on_response_body = on_request_body

    class Late:
        async def on_request_body(self, flow, body):
            if body == b"stop":
                flow.respond(400, b"stopped")

        async def on_response_body(self, flow, body):
            if flow.request.path == "/refuse":
                flow.refuse("seen it")
            else:
                flow.respond(410, b"gone")

    class TooLate:
        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                yield piece
                flow.respond(410, b"gone")

    class Look:
        async def on_request_body(self, flow, body):
            pass

        async def on_response_body(self, flow, body):
            pass

    class Fail:
        async def on_request_head(self, flow):
            raise LookupError("oops")

    class FailLater:
        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                yield piece
                raise LookupError("oops")

    class Hang:
        async def on_request_head(self, flow):
            print("hang began", file=sys.stderr, flush=True)
            try:
                await asyncio.sleep(60)
            finally:
                print("hang ended", file=sys.stderr, flush=True)

        async def on_end(self, flow):
            print("end", flow.outcome, file=sys.stderr, flush=True)

    class SlowPieces:
        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                await asyncio.sleep(0.05)
                yield piece

    class Turns:
        taken = most = 0
        counts = False

        def turn(self):
            self.most, self.taken = max(self.most, self.taken), 0
            asyncio.get_running_loop().call_soon(self.turn)

        async def on_request_body(self, flow, pieces):
            async for piece in pieces:
                if not self.counts:
                    self.counts = True
                    self.turn()
                    time.sleep(0.5)         # all clients have sent by then
                self.taken += len(piece)
            yield b""

        async def on_response_head(self, flow):
            flow.response.headers["X-Most"] = str(max(self.most, self.taken))
"""
RULE = """
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
"""
FREE = """
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
paths = ["/free"]
"""


@pytest.fixture
def start(start_policy, directory):
    def start(*classes: str, keys: str = "", rule: str = 'hosts = ["127.0.0.1"]',
              config: str = ""):
        tables = "".join(f'[filters.{name}]\ncode = "sieve:{name}"\n{keys}\n'
                         for name in classes)
        return start_policy(
            f'{tables}\n{FREE}\n[[rules]]\naction = "allow"\n{rule}\n'
            f'addresses = ["127.0.0.0/8"]\nfilters = {list(classes)!r}\n{RULE}', config,
            modules={"sieve": FILTERS})
    return start
