"""Requests that a limit may refuse, and when they may come again."""

from tests.support.client import Client, build_request
from tests.support.proxy import Proxy
from tests.support.stream import Message


def retry_after(reply: Message) -> int:
    return int(reply.get("Retry-After") or 0)


def attempt(proxy: Proxy, authority: str, n: int, held: list[Client]) -> list[int]:
    """n CONNECTs at a time, over as many connections; the statuses."""
    statuses = []
    clients = [proxy.client() for _ in range(n)]
    for client in clients:
        client.send(build_request("CONNECT", authority, host=authority))
    for client in clients:
        status = client.read_response("CONNECT").status
        statuses.append(status)
        if status == 200:
            held.append(client)
        else:
            client.close()
    return statuses
