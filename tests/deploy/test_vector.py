"""Vector's recipes: the transform runs in VRL's own compiler, the rest is consistent.

Vector itself is in no registry that tests install from.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.lines import HOME, RECIPES, SECRET, write_log

PYTHON = HOME / "bin/python"
TRANSFORM = yaml.safe_load((RECIPES / "vector/access.yaml").read_text())
PROGRAM = TRANSFORM["transforms"]["cutthrough"]["source"]
FILES = [*(RECIPES / "vector").glob("*.yaml"), *RECIPES.glob("*/vector.yaml")]
# The compiler of VRL is one of the programs that a verb of make installs (1.3 GB)
needs_vrl = pytest.mark.skipif(not PYTHON.exists(), reason="make recipes runs it")

# A program and events on standard input; prints the result of each, null: dropped
RUN = """
import json, sys
import vrl_python as vrl
program, events = json.load(sys.stdin)
runtime = vrl.VRLRuntime()
def run(event):
    try:
        return runtime.execute(program, event).processed_event
    except (vrl.VRLRuntimeError, RuntimeError):     # an error, `abort`
        return None
print(json.dumps([run(event) for event in events], default=str))
"""


def run(events: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    done = subprocess.run([PYTHON, "-c", RUN], input=json.dumps([PROGRAM, events]),
                          text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_vrl
def test_a_line_is_an_event_with_its_types(tmp_path: Path) -> None:
    lines = write_log(tmp_path)
    events = run([{"message": line, "host": "proxy-1", "file": "/access.json"}
                  for line in lines])
    for line, event in zip(lines, events, strict=True):
        assert event is not None
        fields = json.loads(line)
        stamp = event.pop("timestamp")
        assert event.pop("instance") == "proxy-1"
        assert event == fields
        assert all(type(event[name]) is type(value) for name, value in fields.items())
        # As VRL writes a value of the type timestamp
        assert stamp == fields["time"].replace("T", " ").replace("Z", " UTC")
    assert SECRET not in str(events)


@needs_vrl
def test_of_a_pod_the_access_log_alone_goes_on(tmp_path: Path) -> None:
    (line, *_) = write_log(tmp_path)
    pod = {"host": "node-1", "kubernetes": {"pod_name": "cutthrough-7"}}
    event, *rest = run([pod | {"message": text} for text in (
        line, '{"level": "info", "message": "of the error log"}', "no JSON", "[1]")])
    assert event is not None and event["instance"] == "cutthrough-7"
    assert rest == [None, None, None]


def test_every_input_is_there() -> None:
    sources = {name for path in (RECIPES / "vector").glob("*.yaml")
               for name in yaml.safe_load(path.read_text()).get("sources", {})}
    assert sources and all(name.startswith("cutthrough_") for name in sources)
    assert TRANSFORM["transforms"]["cutthrough"]["inputs"] == ["cutthrough_*"]
    for path in RECIPES.glob("*/vector.yaml"):
        (sink,) = yaml.safe_load(path.read_text())["sinks"].values()
        assert sink["inputs"] == ["cutthrough"], path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RECIPES)))
def test_nothing_is_interpolated(path: Path) -> None:
    """Vector 0.57 takes ${…} as it stands, unless a flag allows it."""
    assert "${" not in path.read_text()
