"""For curl's pytest suite, by -p: our proxy takes the place of its forward proxy.

Its tests of a plain proxy (test_10, test_13) come to ours by the port that they are
told. All other tests have curl make a tunnel for each of their connections. Only a test
that has used the proxy is written to PEERS_RESULTS. PEERS_PROXY: host:port.
"""

import os

import pytest
from testenv import CurlClient

HOST, _, PORT = os.environ["PEERS_PROXY"].rpartition(":")
CREDENTIALS = "proxy:proxy"                     # those that test_13 has for its proxy
OF_A_PROXY = ("test_10", "test_13")

in_hand: dict[str, object] = {"through": False, "auth": False, "file": ""}
plain_proxy_args = CurlClient.get_proxy_args
plain_args = CurlClient._complete_args


def get_proxy_args(self, *args, proxys: bool = True, tunnel: bool = False, **more):
    if proxys:
        return plain_proxy_args(self, *args, proxys=proxys, tunnel=tunnel, **more)
    in_hand["through"] = True
    made = ["--proxy", f"http://{HOST}:{PORT}/"]
    if not in_hand["auth"]:
        made += ["--proxy-user", CREDENTIALS]   # their own proxy asks for none then
    return [*made, "--proxytunnel"] if tunnel else made


def complete_args(self, *args, **more):
    made = plain_args(self, *args, **more)
    if not str(in_hand["file"]).startswith(OF_A_PROXY):
        in_hand["through"] = True
        made[2:2] = ["--proxy", f"http://{HOST}:{PORT}/", "--proxytunnel",
                     "--proxy-user", CREDENTIALS, "--suppress-connect-headers"]
    return made


CurlClient.get_proxy_args = get_proxy_args
CurlClient._complete_args = complete_args


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item) -> None:
    in_hand.update(through=False, auth="test_13" in item.nodeid, file=item.path.name)


def pytest_runtest_logreport(report) -> None:
    if report.when == "call" and in_hand["through"] and not report.skipped:
        word = "PASS" if report.passed else "FAIL"
        name = report.nodeid.rpartition("::")[2]        # test_01_07_head[http/1.1]
        with open(os.environ["PEERS_RESULTS"], "a") as file:
            file.write(f"{word}: {name}\n")
