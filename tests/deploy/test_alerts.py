"""Which alerts fire of the series in alerts_test.yaml: Prometheus' own tool says it."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.proxy import ROOT

HERE = Path(__file__).parent
RULES = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())
SERIES = yaml.safe_load((HERE / "alerts_test.yaml").read_text())
PROMTOOL = shutil.which("promtool")
# With Prometheus, which Debian would start: a verb of make installs it
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="make recipes runs it")


@needs_promtool
@pytest.mark.parametrize("words", [
    ("check", "rules", ROOT / "deploy/alerts.yaml"),
    ("test", "rules", HERE / "alerts_test.yaml")], ids=lambda words: words[0])
def test_promtool_agrees(words: tuple[str | Path, ...]) -> None:
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_series_are_of_alerts_that_there_are() -> None:
    names = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert {case["alertname"] for test in SERIES["tests"]
            for case in test["alert_rule_test"]} <= names
