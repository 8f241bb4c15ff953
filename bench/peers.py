"""The field: other proxies, each configured to do the same work.

A peer is its files in bench/peers/ and one row here. `deb` is an apt package that is
unpacked in the cache, because it excludes another. Names between @ in the files and
in the command are filled in for each run. Peers without a Debian package are in a
cache directory outside the tree: CUTTHROUGH_BENCH_PEERS, or cutthrough-bench under
the user's cache directory; `python -m bench peers --install` fills it (install.py).
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.children import HERE, BenchError, free_port, wait_for_port
from bench.running import PASSWORD, USER, Proxy, Running, Target

FILES = HERE / "peers"
_home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
CACHE = Path(
    os.environ.get("CUTTHROUGH_BENCH_PEERS") or Path(_home, "cutthrough-bench")
)
SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/go/bin"


@dataclass(frozen=True)
class Peer:
    """`source` is where it comes from: apt, deb, pip, npm, go, goinstall, maven, cargo,
    git or hand, and its name; of cargo the address of a repository and the words behind
    it, with `+` between several installations; of git an address and the Go package in
    it; of goinstall a command with its version; of hand the page of its releases, from
    which you put the program into PATH yourself.

    `program` is what must exist: a command, or a path below the cache. `asks`: does it
    check credentials? `reuses`: does it keep the origin's connections, as it keeps the
    client's?
    """

    about: str
    source: str
    program: str
    command: str
    files: tuple[str, ...]
    version: str = "@PROGRAM@ --version"
    blind: bool = False
    socks: bool = False
    tunnels: bool = True
    plain: bool = True
    keeps: bool = True
    closes: bool = True
    asks: bool = True
    reuses: bool = True
    env: tuple[tuple[str, str], ...] = ()

    def find(self) -> str:
        """Return the path of its program; empty if it is not installed."""
        if "/" not in self.program:
            return shutil.which(self.program, path=SEARCH) or ""
        path = CACHE / self.program
        return str(path) if path.exists() else ""

    def missing(self) -> str:
        """Return the reason if it cannot run here, or nothing."""
        if not self.find():
            return f"{self.source} is not installed"
        needed = self.command.split()[0]
        if needed[0] != "@" and shutil.which(needed, path=SEARCH) is None:
            return f"{needed} is not installed"
        return ""

    def read_version(self) -> str:
        """Return its version number; empty if it prints none."""
        program = self.find()
        if not program:
            return ""
        words = self.version.replace("@CACHE@", str(CACHE)).split()
        command = [word.replace("@PROGRAM@", program) for word in words]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        found = re.search(r"\d+\.\d[\w+-]*(\.\d[\w+-]*)*", done.stdout + done.stderr)
        return found[0] if found else ""

    def start(
        self, target: Target, more: Mapping[str, bytes] = {},
        words: Sequence[str] = (),
    ) -> Running:  # fmt: skip
        """Start it on a free port; return when it listens. `more`: further files of
        its directory; `words`: the end of its command."""
        running = Running([], target, port=free_port(), blind=self.blind)
        running.admin_port = free_port()
        running.closes = self.closes
        directory = running.make_directory()
        for name, data in more.items():
            (directory / name).write_bytes(data)
        root = os.geteuid() == 0
        values = {
            "PROGRAM": self.find(),
            "CACHE": str(CACHE),
            "DIR": str(directory),
            "LISTEN": target.site.proxy_ip,
            "PORT": str(running.port),
            "ADMIN_PORT": str(running.admin_port),
            "ORIGIN": target.authority,
            "ORIGIN_PORT": target.authority.rpartition(":")[2],
            "USER": USER,
            "PASSWORD": PASSWORD,
            "CREDENTIALS": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
            "NGINX_USER": "user root;" if root else "",
            # hitch refuses to serve as root.
            "HITCH_USER": 'user = "nobody"' if root else "",
            # Apache refuses to serve as root.
            "APACHE_USER": "User nobody\nGroup nogroup" if root else "",
        }

        def fill(text: str) -> str:
            return re.sub(r"@([A-Z_]+)@", lambda m: values.get(m[1], m[0]), text)

        command = [fill(word) for word in self.command.split()]
        for name in self.files:
            source, _, called = name.partition(" as ")
            text = fill((FILES / source).read_text())
            if source.endswith(".args"):
                lines = [line.strip() for line in text.splitlines()]
                command += [line for line in lines if line and line[0] != "#"]
            else:
                (directory / (called or Path(source).name)).write_text(text)
        running.command = [shutil.which(command[0], path=SEARCH) or command[0]]
        running.command += [*command[1:], *words]
        with running.closed_on_error():
            running.start(cwd=directory, env=dict(self.env))
            assert running.process is not None
            try:
                wait_for_port(running.port, running.process, 40)
            except BenchError as error:
                raise BenchError(f"{error} {running.said()}") from None
        return running


SINGLE_CORE = (("GOMAXPROCS", "1"),)
VEY = (
    "cargo:https://github.com/bytedance/g3 g3proxy --no-default-features "
    "--features rustls-ring + g3fcgen"
)
PEERS = {
    "squid": Peer(
        "cache off, log off, one process", "apt:squid", "squid",
        "squid -N -f @DIR@/squid.conf", ("squid.conf", "squid.users"),
    ),
    "tinyproxy": Peer(
        "a thread for each connection", "apt:tinyproxy", "tinyproxy",
        "tinyproxy -d -c @DIR@/tinyproxy.conf", ("tinyproxy.conf",),
        version="@PROGRAM@ -v", keeps=False,
    ),
    "apache": Peer(
        "mod_proxy, event MPM, the origin's connections kept", "apt:apache2", "apache2",
        "apache2 -d @DIR@ -f @DIR@/apache.conf -D FOREGROUND",
        ("apache.conf", "apache.users"), version="@PROGRAM@ -v",
    ),
    "nginx": Peer(
        "one worker, one fixed origin, kept; plain requests only", "apt:nginx", "nginx",
        "nginx -p @DIR@ -c @DIR@/nginx.conf", ("nginx.conf",),
        version="@PROGRAM@ -v", tunnels=False,
    ),
    "haproxy-http": Peer(
        "one thread, one fixed origin, kept; plain requests only", "apt:haproxy",
        "haproxy", "haproxy -db -f @DIR@/haproxy-http.conf", ("haproxy-http.conf",),
        version="@PROGRAM@ -v", tunnels=False,
    ),
    "haproxy-tcp": Peer(
        "one thread, blind, copies: a relay, not a forward proxy", "apt:haproxy",
        "haproxy", "haproxy -db -f @DIR@/haproxy-tcp.conf", ("haproxy-tcp.conf",),
        version="@PROGRAM@ -v", blind=True,
    ),
    "haproxy-splice": Peer(
        "the same by splice, for 1 MiB in tunnels", "apt:haproxy",
        "haproxy", "haproxy -db -f @DIR@/haproxy-splice.conf", ("haproxy-splice.conf",),
        version="@PROGRAM@ -v", blind=True,
    ),
    "microsocks": Peer(
        "a thread for each connection, no credentials", "apt:microsocks", "microsocks",
        "microsocks", ("microsocks.args",),
        version="dpkg-query -W microsocks", socks=True,
    ),
    "dante": Peer(
        "its own number of processes, no credentials", "apt:dante-server", "danted",
        "danted -f @DIR@/danted.conf", ("danted.conf",),
        version="@PROGRAM@ -v", socks=True,
    ),
    "mitmproxy": Peer(
        "mitmdump, tunnels unread, bodies streamed", "pip:mitmproxy",
        "mitmproxy/bin/mitmdump", "@PROGRAM@ --quiet --set confdir=@DIR@",
        ("mitmproxy.yaml as config.yaml",),
    ),
    "proxy.py": Peer(
        "one worker", "pip:proxy.py", "proxy.py/bin/proxy", "@PROGRAM@",
        ("proxy.py.args",),
    ),
    "pproxy": Peer(
        # It does not start with later versions.
        "one process, on uvloop", "pip:pproxy uvloop<0.22", "pproxy/bin/pproxy",
        "@PROGRAM@", ("pproxy.args",),
    ),
    "proxy-chain": Peer(
        "one process of node", "npm:proxy-chain",
        "proxy-chain/node_modules/proxy-chain/package.json",
        "node @CACHE@/proxy-chain/server.js @LISTEN@ @PORT@ @USER@ @PASSWORD@", (),
        version="node -p require('@PROGRAM@').version",
    ),
    "goproxy": Peer(
        "GOMAXPROCS=1", "go:github.com/elazarl/goproxy", "goproxy/goproxy",
        "@PROGRAM@ @LISTEN@:@PORT@ @USER@ @PASSWORD@", (),
        version="grep goproxy @CACHE@/goproxy/go.mod", env=SINGLE_CORE,
    ),
    "gost": Peer(
        "GOMAXPROCS=1; the engine of gost 3.2.6, which keeps two connections to an "
        "origin", "go:github.com/go-gost/x", "gost/gost", "@PROGRAM@ @DIR@/gost.yaml",
        ("gost.yaml",), version="grep go-gost/x @CACHE@/gost/go.mod", reuses=False,
        env=SINGLE_CORE,
    ),
    "sing-box": Peer(
        "GOMAXPROCS=1; closes after every plain response",
        "goinstall:github.com/sagernet/sing-box/cmd/sing-box@v1.14.1",
        "sing-box/sing-box", "@PROGRAM@ run -c @DIR@/sing-box.json",
        ("sing-box.json",),
        # Built without its Makefile it calls its version unknown.
        version="grep -aom1 mod.github.com/sagernet/sing-box.v[0-9.]* @PROGRAM@",
        keeps=False, env=SINGLE_CORE,
    ),
    "smokescreen": Peer(
        "GOMAXPROCS=1; no credentials", "go:github.com/stripe/smokescreen",
        "smokescreen/smokescreen", "@PROGRAM@", ("smokescreen.args",),
        version="grep stripe/smokescreen @CACHE@/smokescreen/go.mod", asks=False,
        env=SINGLE_CORE,
    ),
    "forwarder": Peer(
        "GOMAXPROCS=1", "hand:https://github.com/saucelabs/forwarder/releases",
        "forwarder", "@PROGRAM@ run", ("forwarder.args",),
        version="@PROGRAM@ version", env=SINGLE_CORE,
    ),
    "3proxy": Peer(
        "a thread for each connection, which sleeps 10 ms after each plain response",
        "hand:https://3proxy.org/download",
        "3proxy", "@PROGRAM@ @DIR@/3proxy.cfg", ("3proxy.cfg",),
        version="grep -aom1 3proxy-[0-9.]* @PROGRAM@",
    ),
    "g3proxy": Peer(
        "of VEY, one thread", VEY, "vey/bin/g3proxy",
        "@PROGRAM@ -c @DIR@/vey-forward.yaml", ("vey-forward.yaml",),
    ),
    "littleproxy": Peer(
        "Netty's own number of threads", "maven:io.github.littleproxy:littleproxy",
        "littleproxy/target/classes/Main.class",
        "java -cp @CACHE@/littleproxy/target/classes:@CACHE@/littleproxy/target/lib/*"
        " Main @LISTEN@ @PORT@ @USER@ @PASSWORD@", (),
        version="find @CACHE@/littleproxy/target/lib -name littleproxy-*",
        # A few in a thousand connections with Connection: close stay open (seen: 10 s).
        closes=False,
    ),
}  # fmt: skip

# Those of `python -m bench tls`, which serve TLS.
OF_TLS = {
    "nginx-tls": Peer(
        "TLS, one worker", "apt:nginx", "nginx",
        "nginx -p @DIR@ -c @DIR@/nginx-tls.conf", ("nginx-tls.conf",),
        version="@PROGRAM@ -v",
    ),
    "haproxy-tls": Peer(
        "TLS, one thread", "apt:haproxy", "haproxy",
        "haproxy -db -f @DIR@/haproxy-tls.conf", ("haproxy-tls.conf",),
        version="@PROGRAM@ -v",
    ),
    "hitch": Peer(
        "TLS, one worker; connects to the origin at each handshake", "apt:hitch",
        "hitch", "hitch --config=@DIR@/hitch.conf", ("hitch.conf",), blind=True,
    ),
}  # fmt: skip
# Those of `python -m bench http2`, to which nghttpx is a reverse proxy without a login.
OF_HTTP2 = {
    "haproxy-tls": OF_TLS["haproxy-tls"],
    "nghttpx": Peer(
        "HTTP/2 by TLS, one worker, no credentials", "apt:nghttp2-proxy", "nghttpx",
        "@PROGRAM@", ("nghttpx.args",),
        version="@PROGRAM@ --version",
    ),
}  # fmt: skip
# Those of `python -m bench intercept`, which open TLS inside tunnels.
OF_INTERCEPTION = {
    "squid-bump": Peer(
        "ssl_bump, cache off, log off, one process", "deb:squid-openssl",
        "squid-openssl/usr/sbin/squid", "sh squid-bump.sh",
        ("squid-bump.conf", "squid-bump.sh", "squid.users"),
    ),
    "mitmproxy-open": Peer(
        "mitmdump, tunnels opened, flows not kept", "pip:mitmproxy",
        "mitmproxy/bin/mitmdump", "@PROGRAM@ --quiet --set confdir=@DIR@",
        ("mitmproxy-open.yaml as config.yaml",),
    ),
    "vey": Peer(
        "g3proxy, one thread, and g3fcgen for its leaves", VEY, "vey/bin/g3proxy",
        "sh vey.sh",
        ("vey.yaml", "vey-leaves.yaml", "vey.sh"),
    ),
}  # fmt: skip
# Those of `python -m bench streams`: they open HTTP/2 too.
OF_STREAMS = {
    "mitmproxy-streams": replace(
        OF_INTERCEPTION["mitmproxy-open"], about="mitmdump, HTTP/2 on both sides",
        files=("mitmproxy-streams.yaml as config.yaml",)),
    "vey": OF_INTERCEPTION["vey"],
}  # fmt: skip
# Those of `python -m bench recording`. None of them checks credentials but mitmproxy.
OF_RECORDING = {
    "replayproxy": Peer(
        "its sessions are SQLite files",
        "cargo:https://github.com/chhoumann/replayproxy", "replayproxy/bin/replayproxy",
        "@PROGRAM@ serve --config @DIR@/replayproxy.toml", ("replayproxy.toml",),
        # It prints none: cargo has noted it
        version="grep -o replayproxy.[0-9.]* @CACHE@/replayproxy/.crates.toml",
    ),
    "hoverfly": Peer(
        "its simulation is in memory",
        "git:https://github.com/SpectoLabs/hoverfly ./core/cmd/hoverfly",
        "hoverfly/hoverfly", "@PROGRAM@", ("hoverfly.args",),
        version="@PROGRAM@ -version",
    ),
    "mitmproxy-record": Peer(
        "mitmdump: save_stream_file, and server_replay from it", "pip:mitmproxy",
        "mitmproxy/bin/mitmdump", "@PROGRAM@ --quiet --set confdir=@DIR@",
        ("mitmproxy-record.yaml as config.yaml",),
    ),
}  # fmt: skip
# Those of `python -m bench inspect`, which show what passes.
OF_INSPECTION = {
    "mitmdump": Peer(
        "every flow is saved in a file", "pip:mitmproxy", "mitmproxy/bin/mitmdump",
        "@PROGRAM@ --set confdir=@DIR@ --set save_stream_file=@DIR@/flows",
        ("mitmproxy-inspect.yaml as config.yaml",),
    ),
    "mitmweb": Peer(
        "every flow is kept in memory, and shown by a page", "pip:mitmproxy",
        "mitmproxy/bin/mitmweb", "@PROGRAM@ --set confdir=@DIR@ --no-web-open-browser "
        "--web-port @ADMIN_PORT@", ("mitmproxy-inspect.yaml as config.yaml",),
    ),
    "httptoolkit": Peer(
        "its server, which sends each exchange to a page", "npm:httptoolkit-server",
        "httptoolkit/node_modules/httptoolkit-server/package.json",
        "node @CACHE@/httptoolkit/server.js @DIR@ @PORT@", (),
        version="grep -m1 version @PROGRAM@",
    ),
}  # fmt: skip
ALL = (PEERS | OF_TLS | OF_HTTP2 | OF_INTERCEPTION | OF_STREAMS | OF_RECORDING
       | OF_INSPECTION)


def as_proxies() -> dict[str, Proxy]:
    """Return the peers as rows of the table of proxies."""
    return {
        name: Proxy(
            f"{peer.about} ({peer.source})", peer.start, peer.missing(),
            tunnels=peer.tunnels, plain=peer.plain, keeps=peer.keeps,
            closes=peer.closes, blind=peer.blind, socks=peer.socks,
        )
        for name, peer in PEERS.items()
    }  # fmt: skip
