"""Requests by rule and by group, and the exemplars of refusals."""

import re
import urllib.request

import pytest

from tests.support.client import USER
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

POLICY = f"""
groups.ops = ["{USER}"]
groups."we \\"night\\"" = ["{USER}"]
[[rules]]
name = "no"
action = "deny"
hosts = ["refused.invalid"]
[[rules]]
name = "yes"
action = "allow"
addresses = ["127.0.0.1"]
"""
SAMPLE = re.compile(
    r"^cutthrough_(rule|group)_requests_total{(.*?)} ([\d.]+)(?: # (.*))?$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def scrape(port, accept="*/*"):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(port, accept="*/*"):
    """Value and exemplar by kind, rule or group, and result."""
    found = {}
    for kind, text, value, exemplar in SAMPLE.findall(scrape(port, accept)[1]):
        labels = dict(LABEL.findall(text))
        found[kind, labels[kind], labels["result"]] = float(value), exemplar
    return found


@pytest.fixture
def start(start_policy):
    def run(config):
        proxy = start_policy(POLICY, f'admin = "127.0.0.1:0"\nworkers = 2\n{config}')
        listener = re.compile(r"admin listener on 127.0.0.1:(\d+)")
        return proxy, int(wait_until(
            lambda: listener.findall(proxy.stderr()), proxy.stderr)[0])
    return run


def test_requests_are_counted_by_rule_and_group(start, dial, make_origin):
    proxy, port = start("rule_metrics = true\n")
    url = make_origin().url()
    for _ in range(3):
        assert dial(proxy).get(url).status == 200
    refused = [dial(proxy).get("http://refused.invalid/") for _ in range(2)]
    wait_until(lambda: sum(value for (kind, _, _), (value, _) in samples(port).items()
                           if kind == "rule") == 5, "all are counted")
    found = samples(port, "application/openmetrics-text; version=1.0.0")
    counts = {key: value for key, (value, _) in found.items() if value}
    groups = ("ops", r"we \"night\"")
    assert counts == {
        ("rule", "yes", "passed"): 3, ("rule", "no", "refused"): 2,
        **{("group", group, "passed"): 3 for group in groups},
        **{("group", group, "refused"): 2 for group in groups}}
    exemplar = found["rule", "no", "refused"][1]
    number = re.match(r'{request_id="(\d+-\d+)"} 1.0 [\d.]+$', exemplar)[1]
    assert number in [reply.get("X-Request-Id") for reply in refused]
    assert {line["id"] for line in proxy.wait_log(5)} >= {number}
    kind, text = scrape(port, "application/openmetrics-text")
    assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
    assert scrape(port)[0].startswith("text/plain; version=0.0.4")
    assert not any(exemplar for _, exemplar in samples(port).values())


def test_nobody_counts_them_until_a_reload_says_so(start, dial, make_origin):
    proxy, port = start("")
    url = make_origin().url()
    assert dial(proxy).get(url).status == 200
    proxy.wait_log(1)
    assert samples(port) == {}
    line = proxy.reload(f'policy = "{proxy.policy}"\nadmin = "127.0.0.1:0"\n'
                        "workers = 2\nrule_metrics = true\n")
    assert "rule_metrics false -> true" in line
    assert dial(proxy).get(url).status == 200
    wait_until(lambda: samples(port).get(("rule", "yes", "passed"), (0,))[0] == 1,
               "one is counted")
