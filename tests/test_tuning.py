"""tuning/: check reads only, apply prints first, revert puts the old values back."""

import os
import re
import subprocess
from pathlib import Path

import pytest

TUNING = Path(__file__).resolve().parent.parent / "tuning"
SYSCTL = (TUNING / "sysctl.conf").read_text()
KEYS = re.findall(r"^-?([a-z][\w.-]*) = ", SYSCTL, re.MULTILINE)
SETTABLE = "net.ipv4."  # of one network namespace, so that a test may set them


def run(*argv: str, state: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "CUTTHROUGH_STATE": str(state)} if state else None
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=30, check=False, env=environ
    )


def tool(name: str, *args: str, state: Path | None = None) -> str:
    done = run(str(TUNING / name), *args, state=state)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows() -> dict[str, list[str]]:
    done = run(str(TUNING / "check"), "--tsv")
    assert done.returncode in (0, 1), done.stderr
    table = [line.split("\t") for line in done.stdout.splitlines()]
    assert all(len(row) == 5 for row in table)
    assert done.returncode == any(row[0] == "no" for row in table)
    return {row[1]: row for row in table}


def value_of(key: str) -> str:
    return " ".join(Path("/proc/sys", *key.split(".")).read_text().split())


def test_every_setting_has_a_reason_and_a_source() -> None:
    for paragraph in SYSCTL.split("\n\n"):
        if not re.search(r"^[^#]", paragraph, re.MULTILINE):
            continue
        assert re.match(r"# (at least|at most|exactly): \w", paragraph), paragraph
        assert "# Source: " in paragraph, paragraph
        assert len(re.findall(r"^[^#]", paragraph, re.MULTILINE)) == 1, paragraph


def test_check_tells_every_setting_as_the_kernel_has_it() -> None:
    table = rows()
    assert set(table) == {"nofile soft", "nofile hard", *KEYS}
    for key in KEYS:
        verdict, _, now, should, why = table[key]
        assert should and why
        if verdict == "n/a":
            assert not Path("/proc/sys", *key.split(".")).exists()
        else:
            assert now == value_of(key)


def test_check_prints_a_table_for_people() -> None:
    done = run(str(TUNING / "check"))
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["what", "is", "should", "be", "why"]
    assert len(lines) == len(KEYS) + 2


@pytest.mark.parametrize("limit, verdict", [("1024", "no"), ("hard", None)])
def test_check_sees_the_limit_of_its_own_shell(limit: str, verdict: str | None) -> None:
    command = f'ulimit -Sn {limit}; ulimit -Sn; "{TUNING}/check" --tsv'
    now, *lines = run("bash", "-c", command).stdout.splitlines()
    row = next(line.split("\t") for line in lines if "nofile soft" in line)
    assert row[2] == now
    assert verdict in (None, row[0])


@pytest.mark.parametrize("name", ["check", "apply", "revert"])
def test_an_unknown_flag_is_bad_usage(name: str) -> None:
    assert run(str(TUNING / name), "--now").returncode == 2


def test_apply_without_yes_changes_nothing(tmp_path: Path) -> None:
    before = {key: row[2] for key, row in rows().items()}
    said = tool("apply", state=tmp_path)
    assert "nothing was changed" in said or "nothing to do" in said
    assert {key: row[2] for key, row in rows().items()} == before
    assert not list(tmp_path.iterdir())


def test_revert_without_a_state_has_nothing_to_do(tmp_path: Path) -> None:
    assert "nothing to do" in tool("revert", "--yes", state=tmp_path)


def in_namespace(script: str, state: Path) -> list[str]:
    """Output of a bash script in a network namespace of its own, or a skip."""
    probe = "echo 60 >/proc/sys/net/ipv4/tcp_fin_timeout"
    allowed = run("unshare", "-n", "sh", "-c", probe)
    if allowed.returncode != 0:
        pytest.skip("no permission for a network namespace with settings of its own")
    bash = ("bash", "-euc", script, "bash", str(TUNING))
    done = run("unshare", "-n", *bash, state=state)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_apply_sets_and_revert_puts_back(tmp_path: Path) -> None:
    outside = {key: value_of(key) for key in KEYS if key.startswith(SETTABLE)}
    before, during, after = in_namespace(
        """
        cd /proc/sys/net/ipv4
        look() { cat tcp_fin_timeout ip_local_port_range tcp_tw_reuse | xargs; }
        echo 2 >tcp_tw_reuse
        # Lower at its low end than what is recommended: that end is left as it is.
        echo 5000 61000 >ip_local_port_range
        look
        "$1/apply" --only net.ipv4. --yes >&2
        look
        "$1/revert" --yes >&2
        look
        """,
        tmp_path,
    )
    assert before.split() == ["60", "5000", "61000", "2"]
    assert during.split() == ["30", "5000", "65535", "1"]
    assert after == before
    assert not list(tmp_path.iterdir())
    assert {key: value_of(key) for key in outside} == outside


def test_a_second_apply_does_not_forget_what_was_there_first(tmp_path: Path) -> None:
    said = in_namespace(
        """
        "$1/apply" --only net.ipv4.tcp_fin --yes >&2
        "$1/apply" --only net.ipv4.tcp_tw --yes >&2 || echo refused
        """,
        tmp_path,
    )
    assert said == ["refused"]
    assert (tmp_path / "previous").read_text() == "net.ipv4.tcp_fin_timeout = 60\n"
