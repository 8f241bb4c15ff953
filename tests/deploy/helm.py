"""Helm's own code, in a process of its own: its library brings Go's runtime along."""

import json
import subprocess
from typing import Any

import pytest
import yaml

from tests.deploy.lines import HOME
from tests.support.proxy import ROOT

CHART = ROOT / "deploy" / "helm" / "cutthrough"
PYTHON = HOME / "bin/python"
#: A message that wants nothing: the chart has no icon
INFO = 1
LIBRARY = [*HOME.glob("lib/python3*/site-packages/helm_python")]
# 250 MB, which a verb of make installs
needs_helm = pytest.mark.skipif(not LIBRARY, reason="make recipes runs it")

# Words: the chart, its values, the name of the release
RUN = """
import json, sys
import helm_python as helm
chart, values, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
try:
    loaded = helm.Chart.load(chart)
    loaded.validate_schema(values)
    texts = loaded.render(values, name=name, namespace="net")
except helm.HelmError as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({"texts": texts, "lint": helm.lint(chart, values, strict=True)}))
"""


class Failure(Exception):
    """Helm's complaint about the chart or its values."""


def run(values: dict[str, Any], release: str) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, "-c", RUN, CHART, json.dumps(values), release],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise Failure(answer["error"])
    return answer


def render(values: dict[str, Any], release: str = "cutthrough") -> list[dict[str, Any]]:
    """The manifests, as Helm makes them of these values and the chart's own."""
    texts = run(values, release)["texts"]
    return [manifest for path, text in sorted(texts.items())
            if path.endswith(".yaml")
            for manifest in yaml.safe_load_all(text) if manifest]


def lint(values: dict[str, Any]) -> list[str]:
    """The output of `helm lint --strict`."""
    report = run(values, "cutthrough")["lint"]
    return report["errors"] + [message["error"] for message in report["messages"]
                               if message["severity"] > INFO]
