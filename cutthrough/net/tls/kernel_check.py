"""Has the kernel TLS (kTLS), and may this process use it?"""

import errno
import socket

TCP_ULP = 31                # linux/tcp.h; Python has no name for it


def why_no_kernel_tls() -> str:
    """Returns the reason; "" if it can be used.

    The kernel adds the protocol to connected sockets alone: to another it says so if it
    has the module. The attempt also loads the module if this process has CAP_NET_ADMIN.
    """
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                return ""
            if error.errno in (errno.ENOENT, errno.ENOPROTOOPT):
                return "the kernel has no module tls, or has not loaded it"
            return str(error.strerror)
    return ""
