"""`cutthrough ca` from a new authority to a client that connects: a listener has the
certificate that was issued, and the client the file of roots that was exported."""

import subprocess
import sys

import pytest

from tests.support.client import PASSWORD, USER
from tests.support.origin import OK, answer
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.verbs import run_apart

pytestmark = pytest.mark.any_loop

LISTENER = """[[listeners]]
address = "127.0.0.1:0"
certificates = ["{0}.pem"]
certificate_keys = ["{0}.key"]
"""
# A user's command. curl gives an https proxy none of the variables
CLIENT = """eval "$({python} -m cutthrough ca export --dir {ca} --format bundle)"
exec curl -sS --fail --proxy-cacert "$CURL_CA_BUNDLE" -x https://localhost:{port} \
    -U {user} {url}
"""


def ca(*words: object) -> str:
    done = run_apart("ca", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def curl(folder, proxy: Proxy, url: str) -> subprocess.CompletedProcess[str]:
    text = CLIENT.format(python=sys.executable, ca=folder, port=proxy.port,
                         user=f"{USER}:{PASSWORD}", url=url)
    return subprocess.run(["sh", "-c", text], cwd=ROOT, timeout=30, text=True,
                          capture_output=True, env=clean_environment())


@pytest.mark.parametrize("permitted", [(), ("--permit", "localhost")])
def test_an_issued_certificate_serves_a_client_that_trusts_the_bundle(
        loop_name, directory, opened, make_origin, tmp_path, permitted):
    ours, others = tmp_path / "ours", tmp_path / "others"
    ca("init", "--dir", ours, *permitted)
    ca("init", "--dir", others)
    pair = tmp_path / "pair"
    assert "localhost; until 20" in ca("issue", "--dir", ours, "localhost", "--output",
                                       pair)
    proxy = opened.enter_context(Proxy(
        directory("tls"), loop=loop_name, config=LISTENER.format(pair)))
    url = f"http://{make_origin(answer(OK)).authority}/"
    done = curl(ours, proxy, url)
    assert (done.returncode, done.stdout) == (0, "ok"), done.stderr
    done = curl(others, proxy, url)
    assert done.returncode == 60             # CURLE_PEER_FAILED_VERIFICATION
