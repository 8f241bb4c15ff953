"""Which of curl's cases count, and when `make peers-curl` fails."""

import shutil
import subprocess
import tomllib

import pytest

from bench.curlsuite.__main__ import HERE, read_known, report
from bench.curlsuite.cases import goes_through_a_proxy, read_results
from tests.support.proxy import ROOT

CASE = """\
<testcase><info><keywords>
HTTP
{keyword}
</keywords></info>
<client><server>
{server}
</server><command>
http://%HOSTIP:%HTTPPORT/1 {command}
</command></client></testcase>
"""


@pytest.mark.parametrize(("keyword", "server", "command", "counts"), [
    ("HTTP GET", "http", "", True),
    ("HTTP GET", "http", "-i --retry 1", True),
    ("HTTP proxy", "http", "", False),
    ("SOCKS5", "http", "", False),
    ("HTTP GET", "https", "", False),
    ("HTTP GET", "http\nftp", "", False),
    ("HTTP GET", "http", "-x http://%HOSTIP:%PROXYPORT", False),
    ("HTTP GET", "http", "--unix-socket %LOGDIR/sock", False),
])
def test_a_case_counts_when_a_proxy_can_stand_between(keyword, server, command, counts):
    text = CASE.format(keyword=keyword, server=server, command=command)
    assert goes_through_a_proxy(text) == counts


def test_results_are_read_by_number():
    said = "PASS: 1 - HTTP GET\n 2: data FAILED:\nFAIL: 2 - HTTP GET - data\nTESTDONE"
    assert read_results(said) == {"1": "PASS", "2": "FAIL"}


@pytest.mark.parametrize(("ours", "theirs", "known", "whole", "status"), [
    ("PASS PASS", "PASS PASS", {}, True, 0),
    ("PASS FAIL", "PASS FAIL", {"2": "why"}, True, 0),
    ("PASS FAIL", "PASS FAIL", {}, True, 1),            # not explained
    ("PASS PASS", "PASS PASS", {"2": "why"}, True, 1),  # explained, and it passes
    ("PASS FAIL", "PASS PASS", {"2": "why"}, True, 1),  # squid passes more
    ("PASS FAIL", "PASS PASS", {"2": "why"}, False, 0),
])
def test_a_failure_without_a_reason_fails_it(
    capsys, ours, theirs, known, whole, status
):
    results = {name: dict(zip("12", words.split(), strict=True))
               for name, words in (("cutthrough", ours), ("squid", theirs))}
    assert report(results, known, whole) == status
    assert f"squid {theirs.count('PASS')}" in capsys.readouterr().out


def test_a_case_has_one_reason():
    rows = tomllib.loads((HERE / "known.toml").read_text())["because"]
    assert len(read_known()) == sum(len(row["cases"]) for row in rows)


@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")
@pytest.mark.parametrize(("seen", "same"), [
    ("GET /1 HTTP/1.1\r\nHost: a\r\nX: 1\r\nVia: 1.1 p\r\n\r\nVia: x\n", True),
    ("GET /1 HTTP/1.1\r\nX: 1\r\nHost: a\r\n\r\nVia: x\n", True),
    ("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nVia: x\n", False),
    ("GET /1 HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n", False),
    ("GET /2 HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\nVia: x\n", False),
])
def test_only_what_a_proxy_may_change_is_not_compared(tmp_path, seen, same):
    """runtests.pl's own comparison, with ours around it."""
    want = "GET /1 HTTP/1.0\r\nHost: a\r\nX: 1\r\n\r\nVia: x\n"
    (tmp_path / "seen").write_bytes(seen.encode())
    (tmp_path / "want").write_bytes(want.encode())
    script = """
        sub compareparts { return join("", @{$_[0]}) ne join("", @{$_[1]}) }
        sub lines { open(my $file, "<:raw", $_[0]) or die; return [<$file>] }
        require $ARGV[0];
        print main::compareparts(lines($ARGV[1]), lines($ARGV[2])) ? "other" : "same";
    """
    done = subprocess.run(
        ["perl", "-e", script, ROOT / "bench/curlsuite/through_a_proxy.pl",
         tmp_path / "seen", tmp_path / "want"],
        capture_output=True, text=True, check=True)
    assert done.stdout == ("same" if same else "other")
