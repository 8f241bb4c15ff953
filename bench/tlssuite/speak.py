"""One script of tlsfuzzer, as a program of its own: how its connections begin.

    python speak.py SOURCE SCRIPT SEED TUNNEL KEY [argument …]

SEED: the same choice of conversations for each server. TUNNEL:
`-`, or the port of a proxy, through which each connection goes by CONNECT. KEY: `rsa`,
or `ecdsa`: the server has no other key, so each offer of signature algorithms gets
ECDSA's beside RSA's.
"""

import importlib
import random
import socket
import sys


def main(source: str, script: str, seed: str, tunnel: str, key: str,
         *arguments: str) -> None:
    sys.path.insert(0, source)
    if tunnel != "-":
        go_through(int(tunnel))
    if key == "ecdsa":
        offer_ecdsa()
    random.seed(int(seed))
    sys.argv = [script, *arguments]
    importlib.import_module(
        "tlsfuzzer._apps." + script.removesuffix(".py").replace("-", "_")).main()


def go_through(port: int) -> None:
    """Have tlsfuzzer's connections ask this proxy for a tunnel first."""
    messages = importlib.import_module("tlsfuzzer.messages")

    class Tunnel(socket.socket):
        def connect(self, address: tuple[str, int]) -> None:
            super().connect(("127.0.0.1", port))
            name = f"localhost:{address[1]}"
            self.sendall(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = self.recv(1)         # what follows is TLS
                if not byte:
                    raise ConnectionError("no tunnel")
                head += byte
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"no tunnel: {head!r}")

    class Sockets:
        socket = Tunnel

        def __getattr__(self, name: str) -> object:
            return getattr(socket, name)

    messages.socket = Sockets()


def offer_ecdsa() -> None:
    extensions = importlib.import_module("tlslite.extensions")
    scheme = (4, 3)                         # ecdsa_secp256r1_sha256
    for kind in (extensions.SignatureAlgorithmsExtension,
                 extensions.SignatureAlgorithmsCertExtension):
        def create(self, schemes, before=kind.create):
            if schemes and scheme not in map(tuple, schemes):
                schemes = [scheme, *schemes]
            return before(self, schemes)

        kind.create = create


if __name__ == "__main__":
    main(*sys.argv[1:])
