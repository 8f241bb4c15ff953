"""`python -c "import proxy"`: the front door, and the load generators of the field."""

import base64
import re
import shutil
import signal
import subprocess

import pytest

from tests.support.client import build_request
from tests.support.proxy import clean_environment
from tests.support.wait import wait_until

DEMONSTRATION = "Basic " + base64.b64encode(b"username:password").decode()


@pytest.fixture
def demonstration(start_proxy):
    def start(*flags: str, **env: str):
        return start_proxy(*flags, command=("-c", "import proxy"), user=False, env=env)

    return start


def test_the_banner_says_that_demonstration_credentials_are_in_force(
    demonstration, loop_name
):
    proxy = demonstration()
    assert re.match(
        rf"cutthrough \S+ listening on 127\.0\.0\.1:{proxy.port}, 1 workers?, "
        rf"{loop_name}\b.*"
        r"demonstration credentials username:password",
        proxy.banner,
    ), proxy.banner


def test_origin_form_goes_to_the_origin(demonstration, nginx, dial):
    proxy = demonstration("--origin", f"http://{nginx.authority}")
    client = dial(proxy)
    for _ in range(3):
        reply = client.get(
            "/index.html", auth=DEMONSTRATION, host=f"127.0.0.1:{proxy.port}"
        )
        assert (reply.status, reply.body) == (200, nginx.payload("index.html"))
    assert client.get("/index.html", auth=None, host="x").status == 407


@pytest.mark.any_loop
def test_absolute_form_and_connect_are_served_beside_it(
    demonstration, nginx, dial, make_origin
):
    proxy = demonstration("--origin", f"http://{nginx.authority}")
    elsewhere = make_origin()
    assert dial(proxy).get(elsewhere.url(), auth=DEMONSTRATION).body == b"ok"
    assert dial(proxy).connect(elsewhere.authority, auth=DEMONSTRATION).status == 200


@pytest.mark.any_loop
def test_an_origin_form_target_gets_the_origins_host(demonstration, nginx, dial):
    proxy = demonstration("--origin", f"http://{nginx.authority}")
    reply = dial(proxy).get("/echo-host", auth=DEMONSTRATION, host="anything.example")
    assert reply.body.decode() == nginx.authority


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_it_ends_with_status_0(demonstration, number):
    proxy = demonstration()
    proxy.signal(number)
    assert proxy.wait_exit() == 0
    assert "Traceback" not in proxy.stderr()


@pytest.mark.any_loop
def test_it_takes_the_environment_too(demonstration, nginx, dial):
    proxy = demonstration(CUTTHROUGH_ORIGIN=f"http://{nginx.authority}")
    assert dial(proxy).get("/1k", auth=DEMONSTRATION, host="x").body == nginx.payload(
        "1k"
    )


@pytest.mark.any_loop
def test_demonstration_credentials_serve_loopback_only(directory):
    """R29."""
    import sys

    from tests.support.proxy import ROOT

    done = subprocess.run(
        [sys.executable, "-c", "import proxy", "--listen", "0.0.0.0:0"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        timeout=30,
        text=True,
    )
    assert done.returncode == 2
    assert "loopback" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.any_loop
def test_it_stays_until_it_is_told_to_stop(demonstration, dial):
    proxy = demonstration()
    client = dial(proxy)
    client.send(build_request("GET", "http://127.0.0.1:1/", auth=DEMONSTRATION))
    assert client.read_response().status == 502
    assert proxy.process.poll() is None


@pytest.mark.any_loop
@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
def test_the_fields_wrk_command_reaches_the_origin(demonstration, nginx):
    """The origin has logged every request that wrk counts."""
    proxy = demonstration(
        "--origin", f"http://{nginx.authority}", "--access-log", "off"
    )
    before = len(nginx.hits("/index.html"))
    done = subprocess.run(
        [
            "wrk",
            "-t1",
            "-c10",
            "-d1",
            "-H",
            f"Proxy-Authorization: {DEMONSTRATION}",
            f"http://127.0.0.1:{proxy.port}/index.html",
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "Non-2xx" not in done.stdout and "Socket errors" not in done.stdout, (
        done.stdout
    )
    count = int(re.search(r"(\d+) requests in", done.stdout)[1])
    # nginx logs an answer after it was sent
    wait_until(lambda: len(nginx.hits("/index.html")) - before >= count,
               lambda: done.stdout)
    arrived = len(nginx.hits("/index.html")) - before
    assert 0 < count and arrived <= count + 10, done.stdout


@pytest.mark.any_loop
@pytest.mark.skipif(not shutil.which("siege"), reason="siege is not installed")
def test_the_fields_siege_command_reaches_the_origin(demonstration, nginx, tmp_path):
    proxy = demonstration(
        "--origin", f"http://{nginx.authority}", "--access-log", "off"
    )
    before = len(nginx.hits("/index.html"))
    settings = tmp_path / "siegerc"
    settings.write_text("verbose = false\nlogging = false\njson_output = true\n")
    done = subprocess.run(
        [
            "siege",
            "-R",
            str(settings),
            "-b",
            "-c5",
            "-r20",
            "-H",
            f"Proxy-Authorization: {DEMONSTRATION}",
            f"http://127.0.0.1:{proxy.port}/index.html",
        ],
        env=clean_environment(HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    count = int(
        re.search(r'"?[Tt]ransactions"?:\s*(\d+)', done.stdout + done.stderr)[1]
    )
    assert count == 100
    wait_until(lambda: len(nginx.hits("/index.html")) - before == count, "logged")
