"""JSON lines of the access log, each checked by the schema when a test reads it."""

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from cutthrough.tools.log_schema import PHASES

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "accesslog.schema.json").read_text())
Draft202012Validator.check_schema(SCHEMA)
_validator = Draft202012Validator(SCHEMA)


@functools.lru_cache(100_000)
def check(text: str | bytes) -> None:
    """Raises AssertionError if a line does not match the schema, or if its phases,
    which are consecutive, add up to more than its total."""
    record = json.loads(text)
    wrong = [error.message for error in _validator.iter_errors(record)]
    assert not wrong, (wrong, text)
    phases = sum(record.get(name) or 0.0 for name in (*PHASES, "hook_ms"))
    assert phases <= record["total_ms"] + 0.01, text


def read_line(text: str | bytes) -> dict[str, Any]:
    check(text)
    return json.loads(text)
