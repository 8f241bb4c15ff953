"""The numbers of tuning/, because a host may have only the package installed.

tests/doctor/test_host.py compares them with tuning/sysctl.conf and tuning/limits.conf,
which have the reasons and the sources. A value is compared by `at least` (a range must
be at least as wide; of three numbers the last one counts), `at most` or `exactly`.
"""

from typing import NamedTuple

NOFILE = 1048576


class Sysctl(NamedTuple):
    key: str
    value: str
    how: str
    why: str


SYSCTLS = (
    Sysctl("net.core.somaxconn", "4096", "at least",
           "the accept queue of each worker; the backlog is cut to it"),
    Sysctl("net.ipv4.tcp_max_syn_backlog", "4096", "at least",
           "half-open connections before SYN cookies are sent"),
    Sysctl("net.ipv4.ip_local_port_range", "10240 65535", "at least",
           "connections to one address and port of an origin"),
    Sysctl("net.ipv4.tcp_tw_reuse", "1", "exactly",
           "a port in TIME-WAIT serves a new connection after a second"),
    Sysctl("net.ipv4.tcp_fin_timeout", "30", "at most",
           "how long a socket waits for a peer that never closes"),
    Sysctl("net.ipv4.tcp_slow_start_after_idle", "0", "exactly",
           "a pooled connection keeps its congestion window"),
    Sysctl("net.ipv4.tcp_rmem", "4096 131072 16777216", "at least",
           "the receive window of a long path"),
    Sysctl("net.ipv4.tcp_wmem", "4096 16384 16777216", "at least",
           "the send window of a long path"),
    Sysctl("fs.file-max", "2097152", "at least", "descriptors of the whole system"),
    Sysctl("fs.nr_open", "1048576", "at least", "the ceiling of the nofile limit"),
    Sysctl("fs.pipe-max-size", "1048576", "at least", "1 MiB splices cheapest"),
    Sysctl("fs.pipe-user-pages-soft", "262144", "at least",
           "bulk tunnels beyond it are copied, not spliced"),
    Sysctl("net.netfilter.nf_conntrack_max", "262144", "at least",
           "connections that the firewall tracks, two of each exchange"),
)


def suffices(wanted: Sysctl, value: str) -> bool:
    have, want = _numbers(value), _numbers(wanted.value)
    if len(have) != len(want):
        return False
    if wanted.key == "fs.pipe-user-pages-soft" and have == [0]:
        return True                          # no limit
    if wanted.how == "exactly":
        return have == want
    if wanted.how == "at most":
        return have <= want
    if len(want) == 2:
        return have[0] <= want[0] and have[1] >= want[1]
    return have[-1] >= want[-1]


def widest(wanted: Sysctl, value: str) -> str:
    """The value to set, as in tuning/apply: no part of it is worse than the current."""
    have, want = _numbers(value), _numbers(wanted.value)
    if len(have) != len(want) or len(want) == 1:
        return wanted.value
    if len(want) == 2:
        return f"{min(have[0], want[0])} {max(have[1], want[1])}"
    return " ".join(str(max(pair)) for pair in zip(have, want, strict=True))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split() if part.lstrip("-").isdigit()]
