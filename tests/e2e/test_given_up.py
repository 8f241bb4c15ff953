"""The kernel gives up a connection to an origin that is gone."""

import subprocess
import threading
from pathlib import Path

from tests.support.client import build_request
from tests.support.network import own_network
from tests.support.origin import Connection

RETRIES = Path("/proc/sys/net/ipv4/tcp_retries2")
REJECT = """
    table ip gone {{
        chain input {{
            type filter hook input priority 0;
            tcp dport {port} reject with icmp host-unreachable
        }}
    }}
"""


def test_an_origin_that_is_gone_before_its_response_is_no_reset(
        start_proxy, make_origin, dial) -> None:
    """ICMP, or ARP, says why nothing is acknowledged: it was `origin_reset`, with 502,
    where the silence alone was `response_timeout`."""
    begun = threading.Event()

    def script(conn: Connection) -> None:
        conn.fill()
        begun.set()
        conn.stall()

    with own_network():
        RETRIES.write_text("1")             # after 0.6 s
        proxy, origin = start_proxy(), make_origin(script)
        client = dial(proxy)
        client.send(build_request("POST", origin.url(), "Content-Length: 9"))
        assert begun.wait(10)
        subprocess.run(["nft", "-f", "-"], text=True, check=True,
                       input=REJECT.format(port=origin.port))
        client.send(b"body")                # nobody acknowledges it
        reply = client.read_response("POST")
        assert (reply.status, reply.error) == (504, "http_response_timeout")
        proxy.wait_reason("response_timeout")
        subprocess.run(["nft", "delete", "table", "ip", "gone"], check=True)
