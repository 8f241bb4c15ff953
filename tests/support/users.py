"""Users with hashed passwords, and questions that keep the helpers at work."""

import base64

import bcrypt
import psutil

from tests.support.client import Client
from tests.support.wait import wait_until

BOB = "Basic " + base64.b64encode(b"bob:secret").decode()
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f'users.bob.password = "{HASH}"\n'


def basic(pair: str) -> str:
    return "Basic " + base64.b64encode(pair.encode()).decode()


def hash_of(secret: str, cost: int = 4) -> str:
    return bcrypt.hashpw(secret.encode(), bcrypt.gensalt(cost)).decode()


RIGHT, WRONG, SLOW = basic("ann:one"), basic("ann:two"), basic("slow:one")


def wait_hashing(proxy) -> psutil.Process:
    """The worker makes its first helper process for its first hash."""
    return wait_until(lambda: proxy.helpers(proxy.worker.pid), "a helper")[0]


def ask(port: int, url: str, auth: str, status: int) -> None:
    with Client(port) as client:
        assert client.get(url, auth=auth).status == status
