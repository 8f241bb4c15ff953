"""A c-ares channel that sends its queries from many source ports.

c-ares keeps a UDP socket as long as one of its queries is open, so an unanswered name
pinned the source port, and an attacker has to guess that port (RFC 5452 section 4.5).
`udp_max_queries` opens another socket after so many queries. pycares 5.2 declares the
field of `ares_options` but has no argument for it, so `ares_init_options` is called
here. If pycares' internals differ, it chooses the ports as before: a test notices.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import aiodns
import pycares

log = logging.getLogger("cutthrough")

# From c-ares' ares.h: part of its ABI
ARES_OPT_UDP_MAX_QUERIES = 1 << 19
RESOLV_CONF = "/etc/resolv.conf"
# Queries through one port: a name takes two. So the 2048 names that may be open need
# 256 sockets, and an idle channel has none.
PORT_QUERIES = 16


def read_stamp() -> tuple[int, ...]:
    """Another one if the system's name servers may have changed. c-ares watches the
    file's directory, and misses a file elsewhere that it is a link to (NetworkManager,
    systemd-resolved). glibc, too, asks for each name."""
    try:
        status = os.stat(RESOLV_CONF)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


class ManyPorts(pycares.Channel):
    """Like pycares' channel with an event thread, and with `udp_max_queries`."""

    _channel: Any = None                # for __del__, if __init__ fails

    def __init__(self, *, flags: int, timeout: float, tries: int) -> None:
        ffi, lib = (getattr(pycares, name) for name in ("_ffi", "_lib"))
        pycares._shutdown_manager.start()
        self._lock = threading.RLock()
        self._flags = flags
        self._sock_state_cb_handle = None
        options = ffi.new("struct ares_options *")
        options.flags = flags
        options.timeout = int(timeout * 1000)
        options.tries = tries
        options.udp_max_queries = PORT_QUERIES
        options.evsys = lib.ARES_EVSYS_DEFAULT
        channel = ffi.new("ares_channel *")
        if lib.ares_init_options(
                channel, options,
                lib.ARES_OPT_FLAGS | lib.ARES_OPT_TIMEOUTMS | lib.ARES_OPT_TRIES
                | lib.ARES_OPT_EVENT_THREAD | ARES_OPT_UDP_MAX_QUERIES
                ) != lib.ARES_SUCCESS:
            raise pycares.AresError("Failed to initialize c-ares channel")
        self._channel = channel


class Names(aiodns.DNSResolver):
    """aiodns' resolver over ManyPorts, or over pycares' channel if ManyPorts fails."""

    def _make_channel(self, **options: Any) -> tuple[bool, pycares.Channel]:
        """Raises OSError and pycares.AresError."""
        make: Callable[..., tuple[bool, pycares.Channel]] = super()._make_channel
        try:
            return self._make_any(make, options)
        except RuntimeError as error:       # no thread: a bound of processes is reached
            # It has noted the thread that did not begin, and would begin no other
            pycares._shutdown_manager._thread = None
            raise OSError(errno.EAGAIN, str(error)) from None

    def _make_any(self, make: Callable[..., tuple[bool, pycares.Channel]],
                  options: dict[str, Any]) -> tuple[bool, pycares.Channel]:
        try:
            return True, ManyPorts(timeout=self._timeout, **options)
        except (AttributeError, TypeError) as error:
            log.warning("pycares %s: questions to name servers keep their source port "
                        "(%s)", pycares.__version__, error)
        except pycares.AresError:
            pass                            # no thread or inotify: aiodns needs neither
        return make(**options)
