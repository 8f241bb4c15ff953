"""`cutthrough doctor`: descriptors, CPUs, a container's limits, names, clock, log."""

import os
import socket

import pytest

from cutthrough.config.settings import from_options
from cutthrough.doctor import capacity, dns_and_clock, program
from cutthrough.doctor.finding import Host
from cutthrough.policy.source import Filter, Limits, Policy, Rule, User
from cutthrough.process import cpus
from tests.doctor.hosts import make_case, tree, verdicts
from tests.support.dns import NXDOMAIN, REFUSED, SERVFAIL
from tests.support.resolving import names as names
from tests.support.wait import PATIENCE

MIB = 1 << 20
OURS = len(os.sched_getaffinity(0))


# Descriptors

@pytest.mark.parametrize(("hard", "options", "verdict"), [
    (1 << 20, {}, "ok"),
    (20000, {}, "note"),
    (1024, {}, "warn"),
    (1024, {"max_connections": "384"}, "ok"),
    (1024, {"max_connections": "385"}, "warn"),
    (1024, {"max_connections_total": "768", "workers": "2"}, "ok"),
    (1024, {"max_connections_total": "769", "workers": "2"}, "warn"),
])
def test_descriptors_are_held_against_what_is_configured(hard, options, verdict):
    found = capacity.judge_nofile(make_case(**options), hard, hard)
    assert found.verdict == verdict
    assert (found.verdict == "ok") == (not found.advice)


# CPUs

def test_more_workers_than_cpus_are_told():
    assert verdicts(capacity.check_cpus(make_case(workers="auto")))["workers"] == "ok"
    (found,) = [one for one in capacity.check_cpus(make_case(workers=str(OURS + 1)))
                if one.name == "workers"]
    assert found.verdict == "note" and f"--workers {OURS}" in found.advice


@pytest.mark.parametrize(("pin", "verdict"), [("auto", "ok"), ("9999", "fail")])
def test_a_pin_that_cannot_be_is_told(pin, verdict):
    case = make_case(pin=pin, workers="1")
    assert verdicts(capacity.check_cpus(case))["pin"] == verdict


@pytest.mark.parametrize(("governor", "driver", "verdict"), [
    ("schedutil", "acpi-cpufreq", "ok"), ("performance", "acpi-cpufreq", "ok"),
    ("powersave", "intel_pstate", "ok"), ("powersave", "acpi-cpufreq", "note")])
def test_a_governor_that_keeps_a_cpu_slow_is_told(tmp_path, governor, driver, verdict):
    tree(tmp_path, sys__devices__system__cpu__cpu0__cpufreq__scaling_governor=governor,
         sys__devices__system__cpu__cpu0__cpufreq__scaling_driver=driver)
    (found,) = capacity.check_governor(Host(tmp_path), (0, 1))
    assert found.verdict == verdict


def test_a_virtual_machine_has_no_governor(tmp_path):
    assert not list(capacity.check_governor(Host(tmp_path), (0,)))


# A container

def cgroup(root, path: str, files: dict[str, str]):
    tree(root, proc__self__cgroup=f"0::{path}\n")
    for name, text in {"cgroup.controllers": "cpu memory pids", **files}.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def test_a_container_without_limits_is_all_right(tmp_path):
    root = cgroup(tmp_path, "/", {"cpu.max": "max 100000", "memory.max": "max",
                                  "pids.max": "max"})
    assert verdicts(capacity.check_cgroup(make_case(root, workers="64"))) == {
        "cpu.max": "ok", "memory.max": "ok", "pids.max": "ok"}


def test_the_root_cgroup_of_a_host_has_no_limits(tmp_path):
    root = cgroup(tmp_path, "/system.slice/ssh.service", {})
    assert set(verdicts(capacity.check_cgroup(make_case(root))).values()) == {"ok"}


def test_a_limit_further_up_counts(tmp_path):
    root = cgroup(tmp_path, "/kubepods/pod1/c", {
        "kubepods/pod1/c/cpu.max": "max 100000",
        "kubepods/pod1/cpu.max": "50000 100000",
        "kubepods/cpu.max": "200000 100000", "kubepods/pod1/c/memory.max": "max",
        "kubepods/memory.max": str(512 * MIB)})
    folders = cpus.cgroup_folders(root)
    assert cpus.cpu_quota(root) == 0.5
    assert capacity.least(folders, "memory.max") == 512 * MIB
    assert capacity.least(folders, "pids.max") is None


@pytest.mark.parametrize(("most", "workers"), [
    ("max", 8), ("50000", 1), ("150000", 2), ("400000", 4), ("1600000", 8)])
def test_workers_are_as_many_as_cpus_that_the_quota_pays_for(
        most, workers, tmp_path, monkeypatch):
    quota = cpus.cpu_quota(cgroup(tmp_path, "/c", {"c/cpu.max": f"{most} 100000"}))
    monkeypatch.setattr(cpus, "usable", lambda: tuple(range(8)))
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    assert cpus.count_workers(from_options()) == workers
    assert cpus.count_workers(from_options(workers=7)) == 7
    assert cpus.count_workers(from_options(pin="3,4,5")) == 3


def test_cgroup_v1_is_not_taken_for_no_limit(tmp_path):
    tree(tmp_path, proc__self__cgroup="5:memory:/a\n0::/\n")
    assert verdicts(capacity.check_cgroup(make_case(tmp_path))) == {
        "cpu.max": "ok", "cgroup": "note"}


@pytest.mark.parametrize(("folder", "most", "quota"), [
    ("docker/c/", "150000", 1.5), ("docker/", "150000", 1.5), ("docker/c/", "-1", None),
    ("", "150000", 1.5)])               # a container has only its own folder, as root
def test_the_quota_of_cgroup_v1_counts(tmp_path, folder, most, quota):
    """Such a container had a worker for each CPU of the host."""
    tree(tmp_path, proc__self__cgroup="5:memory:/a\n4:cpu,cpuacct:/docker/c\n0::/\n")
    cpu = tmp_path / "sys/fs/cgroup/cpu" / folder
    cpu.mkdir(parents=True)
    (cpu / "cpu.cfs_quota_us").write_text(f"{most}\n")
    (cpu / "cpu.cfs_period_us").write_text("100000\n")
    assert cpus.cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "workers", "verdict"), [
    (None, 64, "ok"), (2.0, 2, "ok"), (1.5, 2, "ok"), (0.5, 1, "ok"), (1.0, 2, "warn")])
def test_more_workers_than_the_quota_feeds_are_told(quota, workers, verdict):
    found = capacity.judge_cpu(make_case(workers=str(workers)), quota)
    assert found.verdict == verdict
    assert verdict == "ok" or "CUTTHROUGH_WORKERS=1" in found.advice


@pytest.mark.parametrize(("mib", "options", "verdict"), [
    (None, {}, "ok"),
    (64, {}, "fail"),
    (512, {}, "note"),
    (512, {"max_connections": "10000"}, "note"),
    (2048, {"max_connections": "10000"}, "ok"),
    (128, {"max_connections": "10000"}, "warn"),
    (128, {"max_connections": "10000", "max_connections_total": "1000"}, "note"),
    (128, {"max_connections_total": "10000"}, "warn"),
])
def test_memory_is_held_against_what_connections_take(mib, options, verdict):
    case = make_case(workers="1", **options)
    found = capacity.judge_memory(case, None if mib is None else mib * MIB)
    assert found.verdict == verdict
    assert (verdict == "ok") == (not found.advice)


def test_a_connection_over_tls_takes_more(tmp_path):
    """It counted like any other."""
    file = tmp_path / "c.toml"
    file.write_text('[[listeners]]\naddress = "127.0.0.1:0"\n'
                    'certificates = ["a.pem"]\n')
    plain, tls = (capacity.judge_memory(make_case(workers="1", file=one), 512 * MIB)
                  for one in ("", str(file)))
    assert [found.seen for found in (plain, tls)] == [
        "512MiB: 50062 tunnels at rest", "512MiB: 19589 tunnels at rest"]


@pytest.mark.parametrize(("policy", "options", "verdict"), [
    (Policy(), {}, "ok"),
    (Policy(filters={"f": Filter(code="m:F")}), {}, "note"),
    (Policy(rules=(Rule(action="allow", recording="replay"),)), {}, "note"),
    (Policy(rules=(Rule(action="allow", recording="record"),)), {}, "ok"),
    (Policy(filters={"f": Filter(code="m:F")}), {"collected_bodies": "16MiB"}, "ok")])
def test_collected_bodies_take_memory_too(policy, options, verdict):
    """It was "ok", and filters' bodies ended the worker in its container."""
    case = make_case(workers="1", max_connections="1000", policy=policy, **options)
    found = capacity.judge_memory(case, 700 * MIB)
    assert found.verdict == verdict
    assert ("256MiB of bodies" in found.advice) == (verdict == "note")


def test_what_is_advised_fits():
    found = capacity.judge_memory(make_case(workers="1"), 512 * MIB)
    advised = found.advice.split("max_connections = ")[1].split()[0]
    case = make_case(workers="1", max_connections=advised)
    assert capacity.judge_memory(case, 512 * MIB).verdict in ("ok", "note")


@pytest.mark.parametrize(("most", "verdict"), [(None, "ok"), (100, "ok"), (5, "fail")])
def test_threads_are_processes_too(most, verdict):
    assert capacity.judge_processes(make_case(workers="2"), most).verdict == verdict


# Names

@pytest.mark.parametrize(("answer", "problem"), [
    ("198.41.0.4", "NOERROR"), (NXDOMAIN, "NXDOMAIN"), (SERVFAIL, "SERVFAIL"),
    (REFUSED, "REFUSED"), (None, "no answer")])
def test_a_name_server_is_asked_one_question(names, answer, problem):
    names.zone[dns_and_clock.ASKED] = answer
    reply = dns_and_clock.ask(names.address, 0.2 if answer is None else PATIENCE)
    assert reply.problem == problem
    assert names.asked == [dns_and_clock.ASKED]
    assert 0 <= reply.seconds < PATIENCE


def test_where_nobody_listens_is_told_at_once():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    reply = dns_and_clock.ask("127.0.0.1", PATIENCE, port)
    assert (reply.problem, reply.seconds < PATIENCE) == ("Connection refused", True)
    assert "not appear to be" in dns_and_clock.ask("nonsense", 1.0).problem


@pytest.mark.parametrize(("problems", "verdicts_wanted"), [
    (["NOERROR", "NXDOMAIN"], ["ok", "ok"]),
    (["NOERROR", "no answer"], ["ok", "warn"]),
    (["REFUSED", "SERVFAIL"], ["fail", "fail"]),
])
def test_one_silent_server_is_a_warning_and_all_are_a_failure(problems,
                                                              verdicts_wanted):
    replies = [(f"192.0.2.{i}", dns_and_clock.Reply(problem, 0.01))
               for i, problem in enumerate(problems)]
    found = list(dns_and_clock.judge_servers(replies, "resolvers"))
    assert [one.verdict for one in found] == verdicts_wanted
    assert all(one.advice for one in found if one.verdict != "ok")


def test_a_slow_server_is_told():
    (found,) = dns_and_clock.judge_servers(
        [("192.0.2.1", dns_and_clock.Reply("NOERROR", 0.9))], "resolvers")
    assert (found.verdict, found.seen) == ("note", "NOERROR in 900 ms")


def test_without_resolvers_those_of_resolv_conf_are_asked(tmp_path, names):
    names.zone[dns_and_clock.ASKED] = "198.41.0.4"
    root = tmp_path
    (root / "etc").mkdir()
    (root / "etc/resolv.conf").write_text(
        f"# comment\nnameserver {names.address}\nsearch a.test b.test\n"
        "options ndots:5 edns0\n")
    found = list(dns_and_clock.check_names(make_case(root)))
    assert verdicts(found) == {f"name server {names.address}": "ok",
                               "search list": "note"}
    assert "a.test b.test (ndots:5)" in found[1].seen
    (root / "etc/resolv.conf").write_text(
        f"domain lan\nnameserver {names.address}\n")
    assert verdicts(dns_and_clock.check_names(make_case(root)))["search list"] == "ok"


def test_no_server_at_all_is_told(tmp_path):
    assert verdicts(dns_and_clock.check_names(make_case(tmp_path)))[
        "name servers"] == "warn"


# Time

def test_the_clock_can_be_asked():
    synchronised, error_us = dns_and_clock.read_clock()
    assert synchronised in (True, False) and error_us >= 0


@pytest.mark.parametrize(("policy", "verdict"), [
    (Policy(), "note"),
    (Policy(users={"a": User(name="a", hash="x", expires=1.0)}), "warn"),
    (Policy(limits={"default": Limits(bytes_per_day=1)}), "warn"),
])
def test_a_clock_that_nobody_keeps_matters_where_something_goes_by_it(policy, verdict):
    case = make_case(policy=policy)
    assert dns_and_clock.judge_clock(case, False, 0).verdict == verdict
    assert dns_and_clock.judge_clock(case, True, 500).verdict == "ok"


# The log's target

def test_a_log_that_goes_to_a_socket_is_all_right_where_somebody_listens(tmp_path):
    path = tmp_path / "log"
    for text in (f"syslog:local4@{path}", f"journal:{path}"):
        (found,) = program.check_log(text)
        assert found.verdict == "fail" and "No such file" in found.seen
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        for text in (f"syslog:local4@{path}", f"journal:{path}", "-", "off",
                     "syslog:local4@192.0.2.1:514"):
            assert verdicts(program.check_log(text)) == {"access log": "ok"}, text
