"""What the kernel says of the sockets of this machine."""


def unsent(port: int) -> int:
    """Bytes that sockets of this port hold and their peers have not acknowledged."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file if f":{port:04X}" in line.split()[1]]
    return sum(int(row[4].partition(":")[0], 16) for row in rows)
