"""An operator's decisions about held messages, by the admin API."""

import base64
import json

from tests.support.admin import AUTHORIZED, DOOR, Operator, operator_of
from tests.support.client import build_request
from tests.support.inside import HERE
from tests.support.wait import wait_until

FREE = '[[rules]]\naction = "allow"\n' + HERE
RULE = '[[rules]]\nname = "held"\naction = "allow"\n' + HERE


class Desk:
    """Arms breakpoints, and decides about held messages."""

    def __init__(self, operator: Operator, fields: dict[str, str] = AUTHORIZED) -> None:
        """`fields`: with the operator's token."""
        self.operator = operator
        self._fields = fields

    def ask(self, method: str, path: str, content=None) -> tuple[int, str]:
        connection = self.operator.connection()
        try:
            connection.request(method, path, None if content is None
                         else json.dumps(content), self._fields)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def arm(self, seconds: float = 60.0, **chosen: list[str]) -> None:
        status, text = self.ask("POST", "/breakpoints/armed",
                                {"seconds": seconds, **chosen})
        assert status == 200, text

    def state(self) -> dict:
        status, text = self.ask("GET", "/breakpoints")
        assert status == 200, text
        return json.loads(text)

    def wait(self, count: int = 1) -> list[dict]:
        """Returns the held messages when there are `count` of them."""
        wait_until(lambda: len(self.state()["held"]) == count,
                   lambda: f"{count} held: {self.state()}")
        return self.state()["held"]

    def wait_one(self, side: str, body: str | None = None) -> dict:
        def held() -> dict | None:
            return next((
                message for message in self.state()["held"]
                if message["side"] == side and body in (None, message["body"])), None)
        return wait_until(held, lambda: f"{side}: {self.state()}")

    def show(self, held: dict) -> dict:
        status, text = self.ask("GET", f"/breakpoints/{held['id']}")
        assert status == 200, text
        return json.loads(text)

    def decide(self, held: dict, action: str = "pass", **changes) -> None:
        status, text = self.try_to_decide(held, action, **changes)
        assert status == 200, text

    def try_to_decide(self, held: dict, action: str, **changes) -> tuple[int, str]:
        if isinstance(changes.get("body"), bytes):
            changes["body"] = base64.b64encode(changes["body"]).decode()
        return self.ask("POST", f"/breakpoints/{held['id']}",
                        {"action": action, **changes})

    def counts(self) -> dict[str, float]:
        """Returns the number of messages by result. Workers write it once a second."""
        metrics = self.operator.metrics()
        return {name: metrics[f'breakpoints_total{{result="{name}"}}'] for name in (
            "held", "edited", "passed", "aborted", "expired", "skipped")}

    def wait_counts(self, **wanted: int) -> None:
        wait_until(lambda: {name: count for name, count in self.counts().items()
                            if count} == wanted, lambda: str(self.counts()))


def starter(start_policy):
    """Returns a function that starts a proxy with a breakpoint, and its operator."""
    def run(breakpoint="both", config="", rule="", modules=None):
        proxy = start_policy(
            f'{RULE}breakpoint = "{breakpoint}"\n{rule}',
            f"{DOOR}{config}", modules=modules)
        return proxy, Desk(operator_of(proxy))
    return run


def send(client, method, url, *fields, body=b""):
    client.send(build_request(method, url, *fields, body=body))
