"""Programs that are registered in a real Redis, and verbs over all of them."""

import contextlib
import itertools
import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.admin import TOKEN
from tests.support.fleet import Member
from tests.support.nginx import free_port
from tests.support.proxy import Proxy
from tests.support.verbs import run_apart

IN_REDIS = "registered in Redis$"
_numbers = itertools.count()


@pytest.fixture
def join(secret: Path, directory: Callable[[str], Path],
         opened: contextlib.ExitStack) -> Callable[..., Member]:
    def start(*flags: str, lease: str = "15s", is_public: bool = True) -> Member:
        port = free_port()
        public = ["--admin-public", f"http://127.0.0.1:{port}"] if is_public else []
        member = Member(opened.enter_context(Proxy(
            directory(f"member-{next(_numbers)}"), "--fleet-url-file", str(secret),
            "--fleet-register", "--fleet-lease", lease, "--via", "test-proxy",
            "--admin", f"127.0.0.1:{port}", "--admin-token", TOKEN,
            "--access-log", "off", *public, *flags)))
        member.wait_said(IN_REDIS)
        return member

    return start


@pytest.fixture
def verb(secret: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return run_apart(*words, seconds=120, **{
            "CUTTHROUGH_FLEET_URL_FILE": str(secret), "CUTTHROUGH_ADMIN_TOKEN": TOKEN,
            **environ})

    return run


def name(member: Member) -> str:
    return f"{socket.gethostname()}/{member.proxy.process.pid}"


def listed(verb) -> list[dict]:
    return [json.loads(line) for line in verb("fleet", "--json").stdout.splitlines()]
