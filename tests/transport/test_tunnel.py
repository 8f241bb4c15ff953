"""A tunnel over records: the tests of tests/e2e/test_connect.py.

Without four cases that are the kernel's (see conftest): the origin's end stands behind
data that a worker without splice has not read, or the origin closes before it has read
the client's end, which its kernel answers with a reset; or segments are counted.
"""

from tests.e2e.test_connect import *  # noqa: F403


def test_an_end_behind_a_full_socket_arrives(proxy, make_origin, dial):
    """The tunnel was closed when both directions had ended, though the kernel had not
    yet taken the transport's own end: the client saw a stream that was cut."""
    data = bytes(range(256)) * 8192  # 2 MiB: more than the sockets hold

    def pour(conn):
        conn.send(data)
        conn.half_close()
        assert conn.read_rest() == b""

    client = dial(receive_buffer=4096)
    client.tunnel(make_origin(pour).authority)
    client.half_close()
    assert client.read_rest() == data
    assert proxy.wait_reason("ok")["bytes_down"] == len(data)
