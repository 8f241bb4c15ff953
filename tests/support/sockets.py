"""The kernel's view of the sockets of this machine."""

import socket
import struct


def count_segments(sock: socket.socket) -> int:
    """Returns how many segments with data have come (struct tcp_info,
    tcpi_data_segs_in): acknowledgements alone come when the kernel likes."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 156)
    return struct.unpack_from("I", info, 152)[0]


def unsent(port: int) -> int:
    """Returns the unacknowledged bytes in the sockets of this port."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file if f":{port:04X}" in line.split()[1]]
    return sum(int(row[4].partition(":")[0], 16) for row in rows)


def unread(port: int) -> int:
    """Returns the bytes that have come to the sockets connected to this port, and that
    no program has read."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file if f":{port:04X}" in line.split()[2]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows)


def attempts(proxy, port):
    """The states of the worker's sockets towards this port."""
    connections = proxy.worker.net_connections("tcp")
    return [connection.status for connection in connections
            if connection.raddr and connection.raddr.port == port]
