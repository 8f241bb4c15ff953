"""The run: its plan, parts that are skipped and named, and that nothing is left."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench import __main__ as command
from bench import asked, cores, install, plan, run
from bench.blocks import Block, Part, check_plan, estimate
from bench.children import BenchError, Namespaces, Site, end, spawn, wait_for_port
from bench.clients import build_load_command
from bench.collect import cpu_times
from bench.measure import run_once
from bench.origin import Origin
from bench.peers import ALL, FILES, PEERS
from bench.proxies import PROXIES
from bench.rows import Row
from bench.running import Running, Target
from bench.scenarios import GROUPS, SCENARIOS
from bench.summary import summarise
from tests.bench.processes import wait_below
from tests.bench.servers import needs_compiler, needs_nginx, relay

TREE = Path(__file__).resolve().parents[2]


def test_every_group_has_scenarios_but_the_sixth_which_is_made_of_variants() -> None:
    groups = {scenario.group for scenario in SCENARIOS.values()}
    assert groups == GROUPS.keys()
    assert len(plan.FEATURES) >= 5


def test_the_field_has_every_group_and_every_peer_in_under_45_minutes() -> None:
    parts = plan.field()
    named = {name for part in parts for name in part.scenarios}
    assert {SCENARIOS[name].group for name in named} == GROUPS.keys()
    assert {name for part in parts for name in part.proxies} >= PEERS.keys()
    todo, skipped = check_plan(parts, 3, 1.5)
    # Those that Debian has; ten more are installed into the cache or by hand
    most = 34 if skipped.proxies else 45
    assert estimate(todo) < most * 60


def test_a_page_is_fetched_through_those_of_littleproxys_document() -> None:
    """LittleProxy, Apache and nginx were not in it."""
    pages = [part for part in plan.field() if "page" in part.scenarios]
    assert {name for part in pages for name in part.proxies} >= {
        "littleproxy", "squid", "apache", "nginx", "cutthrough", "direct"}


def test_what_is_asked_comes_first_in_three_interleaved_repetitions() -> None:
    todo, _ = check_plan(plan.field(), 3, 1.5)
    first = [block.scenario for block in todo[: len(check_plan(plan.asked())[0])]]
    wanted = {verdict.scenario for verdict in asked.judge([])}
    assert wanted <= set(first)
    for block in todo[: len(first)]:
        assert block.repetitions >= 3
    turns = Block("page", ["a", "b", "c"], 3, 1, first=4).turns()
    assert [f"{proxy}{n}" for proxy, n in turns] == (
        ["a4", "b4", "c4", "c5", "b5", "a5", "a6", "b6", "c6"]
    )


def test_a_scenario_goes_on_with_others_and_its_yardstick_once_more() -> None:
    parts = [
        Part(("page",), ("direct", "relay"), repetitions=2),
        Part(("page",), ("direct",), again=("relay",)),  # no new peer: no block
        Part(("page",), ("cutthrough",), again=("relay",), seconds=9),
    ]
    first, second = check_plan(parts)[0]
    assert (first.proxies, first.first) == (["direct", "relay"], 1)
    assert (second.proxies, second.first) == (["relay", "cutthrough"], 3)
    assert (second.repetitions, second.seconds) == (3, 9)


def test_what_cannot_run_is_skipped_with_its_reason() -> None:
    parts = [Part(("ping-c1", "plain-keepalive"), ("direct", "nginx", "tinyproxy"))]
    todo, skipped = check_plan(parts)
    named = {proxy for block in todo for proxy in block.proxies}
    for name in ("nginx", "tinyproxy"):
        if name in skipped.proxies:
            assert "not installed" in skipped.proxies[name]
        else:
            assert name in named
            assert any(pair[1] == name for pair in skipped.pairs)


@pytest.mark.parametrize("there", [False, True], ids=["none", "no quota"])
def test_where_no_worker_can_be_held_back_the_row_is_skipped(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most machines have the second version of cgroups: there the whole run ended."""
    groups = tmp_path / "cpu"
    if there:
        groups.mkdir()
    monkeypatch.setattr(cores, "CPU_GROUPS", groups)
    todo, skipped = check_plan(plan.asked())
    assert "cgroup" in skipped.scenarios["workers"]
    assert "workers" not in {block.scenario for block in todo}
    assert not there or not list(groups.iterdir())


def test_cpu_is_read_to_less_than_a_tick() -> None:
    """Of a second at 500 requests a second ticks of 10 ms left two or three."""
    tree = [psutil.Process()]
    before, began = cpu_times(tree).total, time.process_time()
    while time.process_time() < began + 0.003:
        pass
    took, spent = cpu_times(tree).total - before, time.process_time() - began
    assert 0.003 <= took
    assert took == pytest.approx(spent, abs=0.002)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BenchError, match="unknown: nothing"):
        check_plan([Part(("plain-keepalive",), ("nothing",))])


@pytest.mark.parametrize("name", ALL)
def test_the_configuration_of_every_peer_is_in_the_tree(name: str) -> None:
    peer = ALL[name]
    files = [FILES / word.partition(" as ")[0] for word in peer.files]
    assert all(file.is_file() for file in files)
    assert files or (FILES / name).is_dir()


def test_peers_says_version_source_files_and_command_of_each() -> None:
    names = ["squid", "tinyproxy", "hitch"]
    peers = bench("peers", *names)
    said, _ = peers.communicate(timeout=60)
    for name in names:
        missing = ALL[name].missing()
        assert f"{name:14} {f'skipped: {missing}' if missing else ''}" in said
        assert missing or re.search(rf"{name} +\d+\.\d", said)
        assert f"apt:{name}, bench/peers/{name}.conf" in said.replace(";", ",")
        assert ALL[name].command in said
    assert peers.returncode == any(ALL[name].missing() for name in names)


def test_who_is_installed_by_hand_is_left_with_the_page_of_its_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = replace(ALL["3proxy"], program="no-such-program")
    monkeypatch.setattr(install, "ALL", {"absent": absent})
    monkeypatch.setattr(install, "CACHE", tmp_path / "cache")
    install.install_peers([])
    said = capsys.readouterr().err
    assert said == "bench: absent: put its release into PATH: https://3proxy.org/download\n"


@needs_nginx
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_here_does_its_work(name: str) -> None:
    if PROXIES[name].missing:
        pytest.skip(PROXIES[name].missing)
    scenario = "connect-setup" if PROXIES[name].tunnels else "plain-new"
    scenario = "socks-setup" if PROXIES[name].socks else scenario
    with Origin() as origin:
        row = run_once(scenario, name, origin, 0.3)
    assert "failed" not in row, row
    assert row["requests"] == row["origin_requests"]


FORWARD = [name for name, peer in PEERS.items() if not (peer.blind or peer.socks)]


@needs_nginx
@pytest.mark.parametrize("name", [*FORWARD, "cutthrough-full"])
def test_every_forward_proxy_asks_for_credentials_or_its_row_says_no(name: str) -> None:
    if PROXIES[name].missing:
        pytest.skip(PROXIES[name].missing)
    with Origin() as origin:
        target = Target(origin.site, origin.authority)
        with closing(PROXIES[name].start(target)) as proxy:
            with socket.create_connection((proxy.ip, proxy.port), 20) as peer:
                head = f"GET http://{target.authority}/index.html HTTP/1.1\r\n"
                peer.sendall(f"{head}Host: {target.authority}\r\n\r\n".encode())
                status = peer.recv(4096).split()[1]
    asks = name not in PEERS or PEERS[name].asks
    assert status == (b"407" if asks else b"200")
    assert asks == ("no credentials" not in PROXIES[name].about)


def count_pipes(tree: list[psutil.Process]) -> int:
    count = 0
    for process in tree:
        for fd in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                count += os.readlink(fd).startswith("pipe:")
    return count


def spliced_bytes(haproxy: Running) -> int:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(f"{haproxy.directory}/stats")
        peer.sendall(b"show info\n")
        said = b"".join(iter(lambda: peer.recv(4096), b"")).decode()
    return int(re.findall(r"Total_?Splic\w*: *(\d+)", said)[0])


@needs_nginx
@needs_compiler
@pytest.mark.parametrize(
    ("name", "splices"),
    [
        ("relay", False), ("relay-splice", True), ("cutthrough", True),
        ("cutthrough-copy", False), ("haproxy-tcp", False), ("haproxy-splice", True),
    ],
)  # fmt: skip
def test_what_is_said_to_splice_does(name: str, splices: bool) -> None:
    """HAProxy's row was called splice: by `splice-auto` it made pipes, and copied."""
    if PROXIES[name].missing:
        pytest.skip(PROXIES[name].missing)
    with Origin() as origin:
        target = Target(origin.site, origin.authority)
        with closing(PROXIES[name].start(target)) as proxy:
            before = most = count_pipes(proxy.tree())
            client = spawn(build_load_command(
                "bulk", proxy, origin, "/1m", "--conns=4", "--requests=200"))
            while client.poll() is None:
                most = max(most, count_pipes(proxy.tree()))
            end(client)
            assert client.returncode == 0
            if name == "haproxy-splice":
                assert spliced_bytes(proxy) > 199 << 20
    assert (most > before) == splices


def test_ratios_pair_the_runs_of_a_repetition() -> None:
    """A cause that slowed both down cancels: twice 0.5, though the medians are far
    apart."""
    rows: list[Row] = [
        {"scenario": "page", "proxy": proxy, "repetition": n, "throughput_rps": rps}
        for n, (relay, ours) in enumerate([(100, 50), (10, 5), (40, 20)], 1)
        for proxy, rps in (("relay", float(relay)), ("cutthrough", float(ours)))
    ]
    _, ours = summarise(rows)
    assert ours["ratio_to_relay"] == 0.5
    assert (ours["ratio_to_relay_min"], ours["ratio_to_relay_max"]) == (0.5, 0.5)
    assert ours["unstable"] == "yes"


def bench(*words: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", *words], cwd=TREE, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@needs_nginx
@needs_compiler
def test_a_short_run_is_written_compared_and_reported(tmp_path: Path) -> None:
    name = f"run-test-{os.getpid()}"
    file = run.RESULTS / f"{name}.json"
    try:
        words = ("run", "--scenarios=connect-setup", "--proxies=direct,relay")
        client = bench(*words, "--seconds=0.3", "--repetitions=2", "--name", name)
        said, progress = client.communicate(timeout=60)
        assert client.returncode == 0, progress
        assert said.count("perf_result ") == 4
        assert said.count("perf_summary ") == 2
        assert "4/4" in progress
        assert json.loads(file.read_text())["environment"]["repetitions"] == 2
        compared = bench("compare", str(file), str(file))
        assert "nothing has become worse" in compared.communicate()[0]
        page = tmp_path / "page.html"
        reported = bench("report", str(file), "-o", str(page))
        reported.communicate()
        assert "connect-setup" in page.read_text()
    finally:
        file.unlink(missing_ok=True)


@needs_nginx
@needs_compiler
def test_when_time_is_over_the_rest_is_left_out_by_name() -> None:
    """25 of the 45 seconds are kept back, and runs of 60 do not fit: the first of them
    is cut off, and the file is whole."""
    name = f"run-test-{os.getpid()}"
    file = run.RESULTS / f"{name}.json"
    try:
        words = ("run", "--scenarios=connect-setup", "--proxies=direct,relay")
        words += ("--seconds=1.5", "--repetitions=3", "--name", name)
        client = bench(*words, "--minutes=0.76")
        said, progress = client.communicate(timeout=60)
        assert client.returncode == 0, progress
        result = json.loads(file.read_text())
        late = sum(runs for *_, runs in result["skipped"]["late"])
        assert 0 < late < 6
        assert len(result["results"]) == 6 - late
        assert not result["environment"]["interrupted"]
        assert "perf_skipped scenario=connect-setup" in said
        assert "reason=time" in said
    finally:
        file.unlink(missing_ok=True)


NAME = f"run-test-{os.getpid()}"
RUN = ("run", "--scenarios=plain-new", "--seconds=60", "--name", NAME)


@needs_nginx
@needs_compiler
@pytest.mark.parametrize(
    ("words", "begun", "number"),
    [
        ((*RUN, "--proxies=relay"), "bin/load plain-new", signal.SIGINT),
        ((*RUN, "--proxies=relay"), "bin/load plain-new", signal.SIGTERM),
        # While it starts, only its starter knows of it: it stayed.
        ((*RUN, "--proxies=cutthrough"), "cutthrough serve --listen", signal.SIGINT),
        (("short", "--seconds=60"), "wrk -t1", signal.SIGTERM),
    ],
    ids=["run-int", "run-term", "start-int", "short-term"],
)
def test_an_interrupted_run_leaves_nothing_behind(
    words: tuple[str, ...], begun: str, number: signal.Signals, tmp_path: Path
) -> None:
    if begun.startswith("wrk") and not shutil.which("wrk"):
        pytest.skip("wrk is not installed")
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    client = bench(*words, start_new_session=True, env=environ)
    try:
        below = wait_below(client, begun)
        client.send_signal(number)
        _, progress = client.communicate(timeout=30)
        assert client.returncode == 130, progress
        assert "interrupted" in progress
        _, left = psutil.wait_procs(below, timeout=5)
        assert not left
        assert not list(tmp_path.iterdir())
    finally:
        client.kill()
        client.communicate()
        (run.RESULTS / f"{NAME}.json").unlink(missing_ok=True)


def test_children_end_when_the_harness_is_killed() -> None:
    """SIGKILL runs no handler: the kernel ends the harness's children."""
    program = (
        "from bench.children import spawn; import sys, time\n"
        "print(spawn(['sleep', '600']).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", program], cwd=TREE, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout
    child = psutil.Process(int(harness.stdout.readline()))
    harness.kill()
    harness.communicate()
    child.wait(10)


def test_a_child_that_never_listens_is_told_of() -> None:
    child = spawn(["sleep", "60"])
    try:
        with pytest.raises(BenchError, match="nothing listens"):
            wait_for_port(9, child, 0.1)
    finally:
        end(child)


@needs_nginx
@needs_compiler
@pytest.mark.skipif(bool(Namespaces.missing()), reason=Namespaces.missing())
def test_three_hosts_can_be_joined_by_veth() -> None:
    site = Namespaces()
    try:
        site.__enter__()
    except BenchError as error:
        pytest.skip(f"no veth here: {error}")
    try:
        with Origin(site) as origin:
            for proxy in ("direct", "relay", "cutthrough"):
                row = run_once("connect-setup", proxy, origin, 0.3)
                assert "failed" not in row, row
                assert row["requests"] == row["origin_requests"]
    finally:
        site.__exit__(None, None, None)
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    assert f"bench-{os.getpid()}" not in listed.stdout


def test_loopback_is_the_site_unless_another_is_asked_for() -> None:
    assert Site().within("client", ["true"]) == ["true"]


def test_every_command_of_the_docs_is_one_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One was `python -m bench.micro`, another `python -m bench micro`."""
    pages = [*TREE.glob("*.md"), *(TREE / "docs").glob("*.md")]
    text = " ".join(" ".join(page.read_text().split()) for page in pages)
    verbs = set(re.findall(r"python -m bench ([a-z][a-z0-9-]*)", text))
    assert "bench.micro" not in text
    for verb in verbs:
        monkeypatch.setattr(sys, "argv", ["bench", verb, "--help"])
        with pytest.raises(SystemExit) as ended:
            command.main()
        assert ended.value.code == 0, verb


@needs_compiler
@needs_nginx
@pytest.mark.parametrize("name", ["ceiling", "ceiling-setup", "ceiling-setup-all"])
def test_the_client_can_be_measured_by_itself(name: str) -> None:
    with Origin() as origin:
        row = run_once(name, "direct", origin, 0.2)
        assert origin.count_requests(0, "/index.html") == 0
    assert row["throughput_rps"] > 0


@needs_compiler
@needs_nginx
@pytest.mark.parametrize("place", ["one", "apart"])
def test_a_place_is_left_again(place: str) -> None:
    near, far = cores.PLACES[place]
    with Origin() as origin:
        with relay("copy", origin.port):
            tree = [one for one in psutil.Process().children() if one.name() == "relay"]
            with cores.placed(place, tree, origin.tree()):
                assert [one.cpu_affinity() for one in tree] == [far]
                assert all(one.cpu_affinity() == near for one in origin.tree())
                assert psutil.Process().cpu_affinity() == near
            assert all(one.cpu_affinity() == cores.USABLE for one in origin.tree())
            assert psutil.Process().cpu_affinity() == cores.USABLE
