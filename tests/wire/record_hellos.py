"""Records ClientHellos of real clients, and tshark's values of them.

    python -m tests.wire.record_hellos [CLIENT…]
    python -m tests.wire.record_hellos --root DIR --ending -13   # clients of a chroot
    python -m tests.wire.record_hellos --values --tshark "chroot DIR tshark"

Each client connects to a listener here, which keeps the first flight in
tests/wire/hellos/NAME.bin, and closes; clients.json has the versions. Needs root: it
runs in a network with `lo` alone, and example.test is 127.0.0.1 there. Clients that are
not installed are left out. values.json has JA4 and JA3 of each file by tshark, 4.2 at
least, and its version.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.network import enter_alone
from tests.wire.twin_hello import Hello, read_hello

HERE = Path(__file__).parent / "hellos"
HOST = "example.test"
URL = f"https://{HOST}:{{port}}/"
WAIT_S = 30

GO = """package main
import ("crypto/tls"; "net/http"; "os")
func main() {
    http.DefaultTransport.(*http.Transport).TLSClientConfig =
        &tls.Config{InsecureSkipVerify: true}
    http.Get(os.Args[1])
}
"""
PYTHON = "import urllib.request, sys; urllib.request.urlopen(sys.argv[1])"
BROWSER = ("--headless --no-sandbox --disable-gpu --no-first-run "
           "--user-data-dir={scratch} --ignore-certificate-errors")
CLIENTS = {
    "openssl": f"openssl s_client -connect {HOST}:{{port}} -servername {HOST} "
               "-alpn h2,http/1.1",
    "openssl-tls12": "openssl s_client -connect 127.0.0.1:{port} -noservername -tls1_2",
    "openssl-alpn": f"openssl s_client -connect {HOST}:{{port}} -servername {HOST} "
                    "-alpn -",
    "curl": f"curl -sk {URL}",
    "curl-address": "curl -sk --http1.1 https://127.0.0.1:{port}/",
    "python": f"{sys.executable} -c {shlex.quote(PYTHON)} {URL}",
    "go": f"{{go}} {URL}",
    "java": f"keytool -printcert -sslserver {HOST}:{{port}}",
    "node": f"node -e 'require(\"https\").get(\"{URL}\")'",
    "node-fetch": f"node -e 'fetch(\"{URL}\")'",
    "chromium": f"chromium {BROWSER} --dump-dom {URL}",
    "firefox": f"firefox-esr --headless --profile {{scratch}} {URL}",
    "wget": f"wget -qO- --no-check-certificate {URL}",
    "git": f"git ls-remote {URL}",
}
# Clients of another root
PROGRAMS = ("openssl", "curl", "firefox-esr")


def record(command: str, prefix: list[str], home: str) -> bytes:
    """The bytes of the first flight; b"": none came."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        port = listener.getsockname()[1]
        filled = command.replace("{port}", str(port))
        client = subprocess.Popen(
            [*prefix, *shlex.split(filled)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"HOME": home})
        data = b""
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(WAIT_S)
                while (read_hello(data)) is None:
                    more = connection.recv(65536)
                    if not more:
                        break
                    data += more
        except TimeoutError:
            pass
        os.killpg(client.pid, 9)
        client.wait()
        return data


def record_all(root: Path, ending: str, only: list[str]) -> None:
    other = root != Path("/")
    prefix = ["chroot", str(root)] if other else []
    path = ":".join(f"{root}/{place}" for place in ("usr/bin", "usr/sbin"))
    versions = {}
    if (HERE / "clients.json").exists():
        versions = json.loads((HERE / "clients.json").read_text())
    with tempfile.TemporaryDirectory(dir=root / "tmp") as made:
        for name, command in CLIENTS.items():
            program = shlex.split(command)[0]
            if (only and name not in only) or (other and program not in PROGRAMS):
                continue
            if program == "{go}":
                program = "go"
            if not shutil.which(program, path=f"{path}:{os.environ['PATH']}"):
                continue
            scratch = Path(made) / name
            scratch.mkdir()
            if program == "go":
                command = command.replace("{go}", str(build_go(scratch)))
            inside = Path("/") / scratch.relative_to(root)
            data = record(command.replace("{scratch}", str(inside)), prefix,
                          str(inside))
            kept = isinstance(read_hello(data), Hello)
            print(f"{name + ending:32}{len(data):6}{'' if kept else '  no hello'}",
                  flush=True)
            if kept:
                (HERE / f"{name}{ending}.bin").write_bytes(data)
                versions[name + ending] = version_of(program, prefix)
    (HERE / "clients.json").write_text(json.dumps(versions, indent=1) + "\n")


def version_of(program: str, prefix: list[str]) -> str:
    """The first line of its version."""
    command = {"openssl": "openssl version", "go": "go version",
               "keytool": "java --version"}.get(program, f"{program} --version")
    return subprocess.run([*prefix, *command.split()], capture_output=True, text=True,
                          check=True).stdout.splitlines()[0].strip()


def build_go(scratch: Path) -> Path:
    (scratch / "get.go").write_text(GO)
    # Without a module the defaults are Go 1.20's
    for command in ("go mod init get", "go build -o get"):
        subprocess.run(command.split(), cwd=scratch, check=True,
                       stderr=subprocess.DEVNULL)
    return scratch / "get"


# --- tshark's values ---------------------------------------------------------------

def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    return ~(total + (total >> 16) + (total >> 32)) & 0xFFFF


def capture(data: bytes, port: int) -> bytes:
    """The bytes as segments of one TCP connection, in records of a pcap file."""
    out = b""
    at = 1
    for i in range(0, len(data), 1400):
        part = data[i:i + 1400]
        tcp = struct.pack(">HHIIBBHHH", port, 443, at, 1, 5 << 4, 0x18, 65535, 0, 0)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(part), 1, 0, 64, 6, 0,
                         bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
        packet = ip + tcp + part
        out += struct.pack("<IIII", 0, i, len(packet), len(packet)) + packet
        at += len(part)
    return out


def write_values(tshark: list[str]) -> None:
    files = sorted(HERE.glob("*.bin"))
    pcap = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for port, file in enumerate(files, 10000):
        pcap += capture(file.read_bytes(), port)
    said = subprocess.run(
        [*tshark, "-r", "-", "-Y", "tls.handshake.type == 1", "-T", "fields",
         "-e", "tcp.srcport", "-e", "tls.handshake.ja4", "-e", "tls.handshake.ja3",
         "-e", "tls.handshake.extensions_server_name"],
        input=pcap, stdout=subprocess.PIPE, check=True).stdout.decode()
    version = subprocess.run([*tshark, "--version"], stdout=subprocess.PIPE,
                             check=True).stdout.decode()
    found = re.search(r"TShark \(Wireshark\) ([0-9.]+[0-9])", version)
    assert found is not None
    values = {}
    for line in said.splitlines():
        port, ja4, ja3, name = line.split("\t")
        values[files[int(port) - 10000].stem] = {"ja4": ja4, "ja3": ja3, "name": name}
    (HERE / "values.json").write_text(json.dumps(
        {"tshark": found[1], "hellos": values}, indent=1) + "\n")
    print(f"{len(values)} of {len(files)} by tshark {found[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.wire.record_hellos")
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--ending", default="")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--tshark", default="tshark", type=shlex.split)
    parser.add_argument("client", nargs="*")
    options = parser.parse_args()
    if options.values:
        write_values(options.tshark)
        return
    if not os.environ.get("RECORDING"):     # /etc/hosts of its own
        with tempfile.NamedTemporaryFile("w", suffix="-hosts") as hosts:
            hosts.write(f"127.0.0.1 localhost {HOST}\n")
            hosts.flush()
            Path(hosts.name).chmod(0o644)
            bind = f"mount --bind {hosts.name} {options.root}/etc/hosts"
            for place in ("proc", "dev") if options.root != Path("/") else ():
                bind += f" && mount --rbind /{place} {options.root}/{place}"
            sys.exit(subprocess.run(
                ["unshare", "-m", "sh", "-c", f'{bind} && exec "$@"', "sh",
                 sys.executable, "-m", "tests.wire.record_hellos", *sys.argv[1:]],
                env=os.environ | {"RECORDING": "1"}, check=False).returncode)
    if why := enter_alone():
        sys.exit(f"no network with lo alone: {why}")
    record_all(options.root, options.ending, options.client)


if __name__ == "__main__":
    main()
