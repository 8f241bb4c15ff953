"""Which of tlsfuzzer's scripts are run, and when `make peers-tls` fails."""

import pytest

from bench.tlssuite.cases import WHOLE, arguments_of, differences, read_verdicts
from bench.tlssuite.report import Known, read_known, report

SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
FAILED = """\
sanity ...
OK

another ...
Error while processing
Traceback (most recent call last):
  File "runner.py", line 235, in run
AssertionError: Unexpected message: Alert(fatal, 50)

sanity ...
OK

Test end
"""


@pytest.mark.parametrize(("script", "options", "key", "own", "expected"), [
    ("ccs", "h:p:n:dC:", "ecdsa", [], ["-C", SUITE, "-n", "9"]),
    ("tls13-ccs", "h:p:n:C:", "rsa", [], ["-C", "TLS_AES_128_GCM_SHA256", "-n", "9"]),
    ("large-hello", "h:p:n:dM", "rsa", [], ["-d", "-n", "9"]),
    ("large-hello", "h:p:n:dM", "ecdsa", [], None),     # its suites are RSA's
    ("tls13-hrr", "h:p:n:", "ecdsa", [], ["-n", "9"]),
    ("cve-1", "h:p:C:", "ecdsa", ["-C", "X_KEY"], ["-C", "X_ECDSA"]),
    ("tls13-ecdsa-support", "h:p:n:", "rsa", [], None),
])
def test_a_script_gets_the_arguments_of_the_key(script, options, key, own, expected):
    assert arguments_of(script, options, key, own, 9) == expected


@pytest.mark.parametrize(("said", "status", "expected"), [
    (FAILED, 1, {"sanity": "", "another": "Unexpected message: Alert(fatal, 50)"}),
    ('"s" repeat 0...\nOK\n"x" repeat 0\nOK\n"x" repeat 1\nValueError: no\n'
     "Test end\n", 1, {"s": "", "x": "no"}),
    ("a ...\nAssertionError\nTest end\n", 1, {"a": "AssertionError"}),
    ("Traceback\nValueError: a suite\n", 1, {WHOLE: "a suite"}),
    ("a ...\nOK\nb ...\n", None, {"a": "", WHOLE: "exit status None"}),
    ("a ...\nOK-expected failure\nb ...\nXPASS\nTest end\n", 1,
     {"a": "", "b": "failed"}),
])
def test_what_a_script_said_becomes_verdicts(said, status, expected):
    assert read_verdicts(said, status) == expected


def test_a_difference_is_another_verdict_and_not_another_message():
    assert differences({"a": "", "b": "x", "c": "x", "d": "", "e": "x"},
                       {"a": "", "b": "y", "c": "", "d": "y"}) == ["c", "d"]


@pytest.mark.parametrize(("ours", "pattern", "whole", "status"), [
    ("", None, True, 0),
    ("x", None, True, 1),               # not explained
    ("x", "a*", True, 0),
    ("", "a*", True, 1),                # explained, and it does not differ
    ("", "a*", False, 0),
])
def test_a_difference_without_a_reason_fails_it(capsys, ours, pattern, whole, status):
    results = {"nginx, rsa": {"ccs": {"all": ""}},
               "listener, rsa, own": {"ccs": {"all": ours}}}
    known = [Known("why", "listener, *", "ccs", pattern)] if pattern else []
    assert report(results, whole, known) == status
    assert "listener, rsa, own" in capsys.readouterr().out


def test_each_reason_names_a_server_of_ours():
    for one in read_known():
        assert one.server.startswith(("listener", "interception")), one
        assert one.reason
