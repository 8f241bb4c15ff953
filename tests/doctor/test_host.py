"""`cutthrough doctor`: faults are reported with their remedy, and nothing else is."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cutthrough.doctor import kernel, program, report, sysctls
from cutthrough.doctor.finding import Finding, Host
from cutthrough.net.options import SocketOption
from tests.doctor.hosts import ME, OUTSIDE, make_case, tree, verdicts
from tests.support.dns import NameServer
from tests.support.proxy import ROOT, clean_environment

TUNING = ROOT / "tuning"


def with_sysctls(root: Path, values: dict[str, str]) -> Path:
    for key, value in values.items():
        path = root / "proc/sys" / key.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value.replace(" ", "\t") + "\n")
    return root


# The numbers are those of tuning/

SETTING = re.compile(r"^# (at least|at most|exactly): .*\n(?:# .*\n)*-?(\S+) = (.*)$",
                     re.MULTILINE)


def test_the_numbers_are_those_of_tuning():
    text = (TUNING / "sysctl.conf").read_text()
    assert [(one.key, one.value, one.how) for one in sysctls.SYSCTLS] == [
        (key, value, how) for how, key, value in SETTING.findall(text)]
    limits = re.findall(r"^\S+ \w+ nofile (\d+)$", (TUNING / "limits.conf").read_text(),
                        re.MULTILINE)
    assert {int(limit) for limit in limits} == {sysctls.NOFILE}


def tuned(*argv: str) -> str:
    done = subprocess.run([str(TUNING / argv[0]), *argv[1:]], capture_output=True,
                          text=True, timeout=30)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_the_doctor_and_tuning_say_the_same_of_this_host():
    table = {row[1]: row for row in (
        line.split("\t") for line in tuned("check", "--tsv").splitlines())}
    would = dict(re.findall(r"would set (\S+): .* -> (.*)", tuned("apply")))
    for one in sysctls.SYSCTLS:
        seen = Host().sysctl(one.key)
        verdict = table[one.key][0]
        if seen is None:
            assert verdict == "n/a"
            continue
        found = kernel.check_sysctl(one, seen)
        assert (found.verdict == "ok") == (verdict == "ok"), one.key
        if found.verdict != "ok":
            assert f"sysctl -w {one.key}='{would[one.key]}'" in found.advice


@pytest.mark.parametrize(("key", "seen", "enough", "advised"), [
    ("net.core.somaxconn", "128", False, "4096"),
    ("net.core.somaxconn", "8192", True, ""),
    ("net.ipv4.tcp_fin_timeout", "15", True, ""),
    ("net.ipv4.tcp_tw_reuse", "2", False, "1"),
    ("net.ipv4.ip_local_port_range", "5000 61000", False, "5000 65535"),
    ("net.ipv4.ip_local_port_range", "1024 65535", True, ""),
    ("net.ipv4.tcp_rmem", "8192 131072 6291456", False, "8192 131072 16777216"),
    ("net.ipv4.tcp_rmem", "4096 16384 33554432", True, ""),
    ("fs.pipe-user-pages-soft", "0", True, ""),
    ("fs.file-max", "9223372036854775807", True, ""),
])
def test_a_setting_is_compared_as_tuning_does(key, seen, enough, advised):
    (one,) = [one for one in sysctls.SYSCTLS if one.key == key]
    assert sysctls.suffices(one, seen) == enough
    assert enough or sysctls.widest(one, seen) == advised


# A stock host gets no false alarm

# Debian 12 on 4 GiB, as installed
STOCK = {
    "net.core.somaxconn": "4096", "net.ipv4.tcp_max_syn_backlog": "256",
    "net.ipv4.ip_local_port_range": "32768 60999", "net.ipv4.tcp_tw_reuse": "2",
    "net.ipv4.tcp_fin_timeout": "60", "net.ipv4.tcp_slow_start_after_idle": "1",
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
    "net.ipv4.tcp_mem": "45000 60000 90000", "net.ipv4.tcp_keepalive_time": "7200",
    "fs.file-max": "9223372036854775807", "fs.nr_open": "1048576",
    "fs.file-nr": "1024 0 9223372036854775807", "fs.pipe-max-size": "1048576",
    "fs.pipe-user-pages-soft": "16384", "fs.pipe-user-pages-hard": "0",
}
TABLE = {"net.netfilter.nf_conntrack_count": "9",
         "net.netfilter.nf_conntrack_max": "100"}
ESTABLISHED = "net.netfilter.nf_conntrack_tcp_timeout_established"
SOCKSTAT = "sockets: used 150\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1\n"
STATUS = "Name:\tpython\nCapEff:\t0000000000000000\n"


@pytest.fixture
def stock(tmp_path):
    return tree(with_sysctls(tmp_path, STOCK), proc__net__sockstat=SOCKSTAT,
                proc__self__status=STATUS)


def test_a_stock_host_is_told_what_could_be_better_and_nothing_else(stock):
    found = list(kernel.check_sysctls(make_case(stock, workers="2")))
    told = verdicts(found)
    assert set(told.values()) == {"ok", "note"}
    assert told["net.core.somaxconn"] == told["fs.file-max"] == "ok"
    assert [name for name, verdict in told.items() if verdict == "note"] == [
        "net.ipv4.tcp_max_syn_backlog", "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
        "fs.pipe-user-pages-soft", "splice pipes"]
    (pipes,) = [finding for finding in found if finding.name == "splice pipes"]
    assert pipes.seen == "64 of 1 MiB" and "soft=262144" in pipes.advice
    assert all(finding.advice for finding in found if finding.verdict != "ok")


@pytest.mark.parametrize(("change", "options", "name", "verdict", "advice"), [
    ({"net.core.somaxconn": "128"}, {}, "net.core.somaxconn", "note", "='4096'"),
    ({"net.core.somaxconn": "128"}, OUTSIDE, "net.core.somaxconn", "warn", "='4096'"),
    ({"fs.file-nr": "95 0 100"}, {}, "descriptors in use", "warn", "fs.file-max=200"),
    ({"net.ipv4.tcp_mem": "0 1 2"}, {}, "net.ipv4.tcp_mem", "warn", "tcp_mem='1 2 4'"),
    ({**TABLE, "net.netfilter.nf_conntrack_count": "90"}, {}, "conntrack table",
     "warn", "nf_conntrack_max=200"),
    ({**TABLE, ESTABLISHED: "600"}, {}, "conntrack memory", "warn",
     'idle_timeout = "600s"'),
    ({**TABLE, ESTABLISHED: "432000"}, {}, "conntrack memory", "ok", ""),
    ({"fs.pipe-user-pages-soft": "0"}, {}, "splice pipes", "ok", ""),
    ({"fs.pipe-user-pages-soft": "0", "fs.pipe-user-pages-hard": "4096"}, {},
     "splice pipes", "note", "beyond 16 bulk tunnels"),
])
def test_what_bites_is_told(stock, change, options, name, verdict, advice):
    found = {one.name: one for one in
             kernel.check_sysctls(make_case(with_sysctls(stock, change), **options))}
    assert found[name].verdict == verdict
    assert advice in found[name].advice


def test_a_privileged_user_has_no_bound_of_pipes(stock):
    tree(stock, proc__self__status="CapEff:\t000001ffffffffff\n")
    (found,) = kernel.check_pipes(make_case(stock))
    assert found.verdict == "ok" and "64 of 1 MiB for others" in found.seen
    tree(stock, proc__self__uid_map="         0       1000          1\n")
    (found,) = kernel.check_pipes(make_case(stock))
    assert found.verdict == "note", "root of a user namespace alone"


def test_without_splice_nothing_is_said_of_pipes(stock):
    case = make_case(stock, splice="off")
    assert kernel.check_splice(case).verdict == "note"
    assert not list(kernel.check_pipes(case))


def test_a_forbidden_io_uring_is_noted_and_no_fault(monkeypatch):
    monkeypatch.setattr(kernel.sends, "turn_on", lambda: errno.EPERM)
    case = make_case(collect_sends="on")
    (found,) = (one for one in kernel.check_kernel(case) if one.name == "io_uring")
    assert (found.verdict, found.seen) == ("note", "Operation not permitted")
    assert "works too" in found.advice
    monkeypatch.setattr(kernel.sends, "turn_on", lambda: 0)
    assert kernel.check_collected_sends().verdict == "ok"


@pytest.mark.parametrize(("release", "verdict"), [
    ("6.1.0-18-amd64", "ok"), ("5.4.0", "ok"), ("4.19.0-6", "note"),
    ("3.10.0", "fail")])
def test_the_kernels_version_is_judged(release, verdict):
    assert kernel.check_version(release).verdict == verdict


@pytest.mark.parametrize(("error", "verdict", "seen"), [
    (errno.ENOTCONN, "ok", "works"),
    (errno.ENOENT, "warn", "the kernel has no module tls, or has not loaded it"),
    (errno.EPERM, "warn", "Operation not permitted")])
def test_tls_by_the_kernel_is_tried_if_it_is_wanted(monkeypatch, error, verdict, seen):
    """The kernel names the missing connection only if it has the module."""
    def refuse(self, *option: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(socket.socket, "setsockopt", refuse)
    assert "kTLS" not in verdicts(kernel.check_kernel(make_case()))
    wanted = kernel.check_kernel(make_case(tls_records="kernel"))
    (found,) = (finding for finding in wanted if finding.name == "kTLS")
    assert (found.verdict, found.seen) == (verdict, seen)


def test_what_the_kernel_must_do_is_tried():
    found = verdicts(kernel.check_kernel(make_case()))
    assert found.keys() == {"version", "epoll", "SO_REUSEPORT", "sealed memory",
                            "splice", "io_uring"}
    assert set(found.values()) <= {"ok", "note"}
    found = verdicts(kernel.check_kernel(make_case(collect_sends="off")))
    assert "io_uring" not in found


def test_what_a_filter_forbids_is_a_failure():
    def forbidden():
        raise PermissionError(1, "Operation not permitted")
    found = kernel.check_feature("epoll", forbidden)
    assert found.verdict == "fail" and "not permitted" in found.seen


# The program

@pytest.mark.parametrize(("mode", "optimised", "verdict"), [
    ("native", True, "ok"), ("release", True, "ok"), ("unknown", True, "ok"),
    ("release", False, "warn"), ("debug", False, "warn"), ("trace", True, "warn"),
    ("asan", True, "warn"), ("fuzz", True, "warn")])
def test_a_slow_build_is_told(mode, optimised, verdict):
    found = program.judge_build(mode, "-O3 -flto", "gcc 12", optimised)
    assert found.verdict == verdict


def test_a_build_tells_its_mode_and_its_flags():
    """Each build was called slow while this module itself was compiled with -O0."""
    built = program.built
    found = program.judge_build(
        built.mode, built.flags, built.compiler, built.optimised)
    assert built.mode in ("release", "native", "debug", "trace", "asan", "fuzz")
    assert built.mode in found.seen
    assert found.verdict == ("warn" if built.mode in program.SLOW_BUILDS else "ok")


@pytest.mark.parametrize(("version", "verdict"), [
    ("OpenSSL 3.0.19 27 Jan 2026", "note"), ("OpenSSL 3.5.1 1 Jul 2025", "ok"),
    ("AWS-LC 5.12.0", "ok")])
def test_doctor_notes_a_libssl_with_slow_handshakes(version, verdict):
    found = program.judge_libssl(version)
    assert (found.verdict, found.seen) == (verdict, version)
    assert ("make aws-lc" in found.advice) == (verdict == "note")


@pytest.mark.parametrize(("options", "name", "verdict"), [
    ({}, "listen 127.0.0.1:8888", "note"),
    (ME, "listen 127.0.0.1:8888", "ok"),
    (OUTSIDE, "listen 0.0.0.0:0", "note"),
    (ME, "socket 127.0.0.1:8888", "ok"),
    ({**ME, "listen": ["192.0.2.1:1"]}, "socket 192.0.2.1:1", "fail"),
    ({"admin": "127.0.0.1:1"}, "admin listener", "ok"),
    ({"admin": "unix:/tmp/a"}, "admin listener", "ok"),
    ({"admin": "unix:/nonexistent/a"}, "admin listener", "fail"),
    ({"admin": "0.0.0.0:1", "admin_token": "x"}, "admin listener", "warn"),
])
def test_listeners_are_judged_by_who_reaches_them(options, name, verdict):
    case = make_case(**options)
    found = [*program.check_listeners(case), *program.check_admin(case)]
    assert verdicts(found)[name] == verdict


class Refusing(socket.socket):
    """A socket of a process that may not bind port 80."""

    def bind(self, address):
        if address[1] == 80:
            raise PermissionError(errno.EACCES, "Permission denied")
        super().bind(address)


@pytest.mark.parametrize(("address", "told"), [
    ("127.0.0.1:80", ["warn"]), ("[::1]:80", ["warn"]), ("127.0.0.1:0", []),
    ("127.9.9.9:3128", [])])
def test_a_port_that_takes_privilege_is_told(stock, monkeypatch, address, told):
    """A capability of another user namespace than the network's was believed."""
    tree(stock, proc__self__status="CapEff:\t000001ffffffffff\n")
    monkeypatch.setattr(program.socket, "socket", Refusing)
    case = make_case(stock, listen=[address])
    assert [one.verdict for one in program.check_ports(case)] == told


def test_an_option_that_is_not_in_force_is_told():
    cut = [SocketOption("backlog", 4096, (128,)), SocketOption("TCP_NODELAY", 1, (1,))]
    found = program.judge_options("127.0.0.1:1", cut)
    assert (found.verdict, found.seen, found.wanted) == (
        "note", "backlog 128", "backlog 4096")


@pytest.fixture
def private(tmp_path):
    """A folder; its owner alone may write into it."""
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    return folder


@pytest.mark.parametrize(("mode", "secret", "verdict"), [
    (0o600, True, "ok"), (0o640, True, "ok"), (0o644, True, "warn"),
    (0o644, False, "ok"), (0o646, False, "fail"), (0o602, True, "fail")])
def test_a_file_that_others_read_or_write_is_told(private, mode, secret, verdict):
    path = private / "a file"
    path.write_text("x")
    path.chmod(mode)
    (found,) = program.judge_file(str(path), "file", secret)
    assert found.verdict == verdict
    if verdict != "ok":
        assert f"chmod o-{'w' if verdict == 'fail' else 'r'} '{path}'" in found.advice


def test_a_file_that_can_be_replaced_is_told(private):
    path = private / "file"
    path.write_text("x")
    private.chmod(0o777)
    assert verdicts(program.judge_file(str(path), "file", False)) == {"file": "fail"}
    private.chmod(0o1777)
    assert verdicts(program.judge_file(str(path), "file", False)) == {"file": "ok"}


def test_a_configuration_is_a_secret_only_where_it_holds_one(private):
    file, secret = private / "cutthrough.toml", private / "password"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    file.write_text(f'user = "me"\npassword_file = "{secret}"\n')
    file.chmod(0o644)
    found = verdicts(program.check_files(make_case(file=str(file))))
    assert found == {"configuration": "ok", "password_file": "ok", "access log": "ok"}
    file.write_text('user = "me"\npassword = "s3cret"\n')
    found = list(program.check_files(make_case(file=str(file))))
    assert verdicts(found)["configuration"] == "warn"
    assert not any("s3cret" in str(finding) for finding in found)


def test_a_password_that_ps_shows_is_told():
    assert verdicts(program.check_files(make_case(**ME)))["password"] == "warn"


def test_where_the_log_goes_is_tried_without_making_it(private):
    good = private / "access.log"
    assert verdicts(program.check_log(str(good))) == {"access log": "ok"}
    assert not good.exists()
    for bad in (private / "none" / "log", private):
        (found,) = program.check_log(str(bad))
        assert found.verdict == "fail"


# All of it

@pytest.fixture
def names():
    try:
        server = NameServer({"a.root-servers.net": "198.41.0.4"})
    except PermissionError:
        pytest.skip("port 53 of a loopback address may not be bound")
    with server:
        yield server


def doctor(*flags: str, prefix: tuple[str, ...] = (), **environ: str):
    return subprocess.run(
        [*prefix, sys.executable, "-m", "cutthrough", "doctor", *flags], cwd=ROOT,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env=clean_environment(**environ))


def test_the_whole_is_a_table_and_its_status_0_without_a_failure(names):
    done = doctor("--resolvers", names.address)
    assert (done.returncode, done.stderr) == (0, "")
    for section in report.SECTIONS:
        assert f"\n{section}\n" in f"\n{done.stdout}"
    assert re.search(r"^  ok    name server 127\.\S+ +NOERROR in \d+ ms$", done.stdout,
                     re.M)
    assert re.search(r"^\d+ ok, \d+ note, \d+ warn, 0 fail$", done.stdout, re.M)
    assert "\x1b" not in done.stdout
    assert names.asked == ["a.root-servers.net"]


def test_as_json_every_finding_has_its_section_and_what_is_not_ok_its_advice(names):
    done = doctor("host", "--json", "--resolvers", names.address)
    told = json.loads(done.stdout)
    assert {one["section"] for one in told["findings"]} == report.SECTIONS.keys()
    for one in told["findings"]:
        assert one["name"] and one["seen"] and one["verdict"] in report.COLOURS
        assert one["verdict"] == "ok" or one["advice"], one
    counted = sum(told[verdict] for verdict in report.COLOURS)
    assert counted == len(told["findings"]) and told["fail"] == 0 == done.returncode


def test_a_failure_is_status_1(names, tmp_path):
    done = doctor("--resolvers", names.address, "--access-log",
                  str(tmp_path / "none" / "log"))
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"^  fail  access log +no directory", done.stdout, re.M)
    assert re.search(r"\b1 fail$", done.stdout.rstrip())


def test_a_configuration_that_cannot_be_used_is_status_2():
    done = doctor("--hed-timeout", "1s")
    assert (done.returncode, done.stdout) == (2, "")
    assert doctor("--listen", "0.0.0.0:0").returncode == 2
    assert doctor("nonsense").returncode == 2


def test_no_secret_is_told(names):
    done = doctor("--json", "--resolvers", names.address,
                  CUTTHROUGH_USER="me", CUTTHROUGH_PASSWORD="s3cret")
    assert done.returncode == 0 and "s3cret" not in done.stdout


def test_a_host_with_a_short_queue_is_seen_for_what_it_is(names):
    """The kernel's own word, in a network namespace with a queue of 16."""
    script = ("ip link set lo up; echo 16 >/proc/sys/net/core/somaxconn; exec \"$@\"")
    done = doctor("--json", CUTTHROUGH_USER="me", CUTTHROUGH_PASSWORD="x",
                  prefix=("unshare", "-n", "sh", "-ec", script, "sh"))
    if not done.stdout:
        pytest.skip(f"no network namespace of our own: {done.stderr}")
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["net.core.somaxconn"]["seen"] == "16"
    assert found["socket 127.0.0.1:8888"]["seen"] == "backlog 16"
    assert found["socket 127.0.0.1:8888"]["verdict"] == "note"


def test_a_command_stays_on_one_line_to_be_copied():
    command = "sysctl -w " + "x" * 100 + "='1 2 3'"
    found = Finding("a", "note", "b", advice=f"{command}  # {'why ' * 40}")
    _, _, advice, *why = "\n".join(report.show([found])).splitlines()
    assert advice.strip() == f"-> {command}"
    assert all(len(line) < 97 for line in why)


def test_a_reader_that_goes_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m cutthrough config | head -1", shell=True, cwd=ROOT,
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert done.stderr == ""


def test_a_terminal_gets_colours():
    assert "\x1b[32mok  \x1b[0m" in "\n".join(
        report.show([Finding("a", "ok", "b", section="c")], coloured=True))
