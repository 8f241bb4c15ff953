"""Lines of a real access log for the recipes, and the paths of programs."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.client import CREDENTIALS, WRONG
from tests.support.lines import SCHEMA, check
from tests.support.origin import Origin
from tests.support.proxy import ROOT, Proxy

RECIPES = ROOT / "deploy" / "recipes"
#: Where `make recipes` installs the programs
HOME = ROOT / "build" / "recipes"
FIELDS: dict[str, dict[str, Any]] = SCHEMA["properties"]
#: In a request's query, which `redact_query` names
SECRET = "s3cret-of-a-query"

NOW = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
PATTERNED = (NOW, "0-7", "GET", "0" * 32,
             "t13d1516h2_8daaf6152771_e5627efa2ab1")


def write_log(base: Path) -> list[str]:
    """Serves requests that end in four ways, and returns the lines of base/access.log,
    the last with every field."""
    with Origin() as origin, Proxy(
            base, "--redact-query", "token", "--peek-tunnels", "true") as proxy:
        for url, auth in (
                (origin.url(f"/?token={SECRET}&a=%22%5C"), CREDENTIALS),
                (origin.url("/"), None), (origin.url("/"), WRONG),
                ("http://127.0.0.1:1/", CREDENTIALS)):
            with proxy.client() as client:
                client.get(url, auth=auth)
        with proxy.client() as client:
            client.tunnel(origin.authority).send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            client.read_response()
        proxy.wait_log(5)
        lines = [*proxy.lines(), full_line()]
    proxy.log_path.write_text("\n".join(lines) + "\n")
    return lines


def example(name: str, kind: dict[str, Any]) -> Any:
    """A value that the field may have."""
    if "const" in kind:
        return kind["const"]
    if "enum" in kind:
        return kind["enum"][-1]
    if "pattern" in kind:
        return next(text for text in PATTERNED if re.search(kind["pattern"], text))
    first = kind["type"][0] if isinstance(kind["type"], list) else kind["type"]
    return {"string": f'the "{name}"', "number": 0.125,
            "integer": 2**53 + 1 if name.startswith("bytes") else 300,
            "object": {"authority": "a.example"}}[first]


def full_line() -> str:
    """A line with every field of the schema; `user` is null beside `tried_user`."""
    record = {name: example(name, kind) for name, kind in FIELDS.items()}
    text = json.dumps(record | {"user": None, "total_ms": 10.5})
    check(text)
    return text
