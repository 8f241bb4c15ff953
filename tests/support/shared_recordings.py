"""Proxies of several hosts that share recordings in PostgreSQL."""

import itertools
import json
import re
import subprocess

import pytest

from tests.support.admin import TOKEN, Operator
from tests.support.proxy import Proxy
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

POLICY = ('[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
          'recording = "{mode}"\n')
BEARER = {"Authorization": f"Bearer {TOKEN}"}
_numbers = itertools.count()


class Host:
    """A proxy with a directory of its own; all hosts have one key."""

    def __init__(self, tmp_path, url_file, name) -> None:
        self.directory = tmp_path / name
        self.directory.mkdir(mode=0o700, exist_ok=True)
        key = self.directory / "key"
        if not key.exists():
            key.write_bytes(b"k" * 32)
            key.chmod(0o600)
        self._url_file, self.proxy = url_file, None

    def operator(self) -> Operator:
        port = wait_until(lambda: re.search(
            r"admin listener on 127\.0\.0\.1:(\d+)", self.proxy.stderr()),
            self.proxy.stderr)
        return Operator(int(port[1]))

    def told(self, text):
        """Returns when the proxy has written it to standard error."""
        wait_until(lambda: text in self.proxy.stderr(), self.proxy.stderr)

    def counted(self, result):
        text = self.operator().ask("GET", "/metrics")[1]
        return sum(int(float(n)) for n in re.findall(
            rf'^cutthrough_capture_exchanges_total\{{result="{result}"\}} (\S+)$',
            text, re.M))

    def get(self, path):
        status, text = self.operator().ask("GET", path, **BEARER)[:2]
        assert status == 200, text
        return json.loads(text)

    def run(self, *words) -> subprocess.CompletedProcess:
        return run_apart(*words, CUTTHROUGH_RECORDING_DIRECTORY=str(self.directory),
                         CUTTHROUGH_RECORDING_URL_FILE=str(self._url_file))


@pytest.fixture
def start(tmp_path, loop_name, opened, url_file):
    def run(name="a", mode="record", config="", **named) -> Host:
        host = Host(tmp_path, url_file, name)
        policy = tmp_path / f"policy-{name}.toml"
        policy.write_text(POLICY.format(mode=mode))
        host.proxy = opened.enter_context(Proxy(
            tmp_path / f"proxy-{next(_numbers)}", loop=loop_name,
            config=f'policy = "{policy}"\nadmin = "127.0.0.1:0"\n'
                   f'admin_token = "{TOKEN}"\nrecording_directory = '
                   f'"{host.directory}"\nrecording_url_file = "{url_file}"\n{config}',
            **named))
        return host
    return run


@pytest.fixture
def ask(postgres, url_file):
    """The rows of a statement; no row while tables or server are not there."""
    def run(columns="url", order="number"):
        try:
            return postgres.ask(
                f"SELECT {columns} FROM cutthrough_recordings.recordings "
                f"ORDER BY session, {order}", url_file.read_text().strip())
        except Exception:
            return []
    return run
