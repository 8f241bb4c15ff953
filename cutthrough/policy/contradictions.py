"""Keys of a rule that cannot stand beside each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from cutthrough.policy.source import OF_TUNNELS


def contradictions(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys of a rule that have no meaning there, each with the reason.
    `fields`: those of source.Rule that the rule has set."""
    if fields.get("message") and fields.get("action") != "deny":
        yield "message", "is for those that a rule refuses: action = \"deny\""
    for key in (OF_TUNNELS | {"tls"}) & fields.keys():
        if "CONNECT" not in fields.get("methods", ("CONNECT",)):
            yield key, "is of tunnels only: add CONNECT to `methods`"
        if "paths" in fields:
            yield key, "is of tunnels only, which have no `paths`"
    if "paths" in fields and fields.get("methods") == ("CONNECT",):
        yield "paths", "is of plain requests only: a tunnel has no path"
    if "origin" in fields:
        for key in (OF_TUNNELS | {"tls", "route"}) & fields.keys():
            yield key, "has no place beside `origin`: its requests are in origin form"
        if fields.get("methods") == ("CONNECT",):
            yield "origin", "is of requests in origin form, and CONNECT is none"
    if "replace_path" in fields:
        prefix = fields["replace_path"][0]
        if "origin" not in fields:
            yield "replace_path", "is of rules that name an `origin`"
        elif not fields.get("paths") or not all(
                glob == prefix or glob.startswith(f"{prefix}/")
                for glob in fields["paths"]):
            yield "replace_path", (
                f"needs `paths` that begin with {prefix or '/'}, such as "
                f"\"{prefix}/**\": a path with .. would leave it")
    if "recording" in fields and "breakpoint" in fields:
        yield "recording", ("has no place beside `breakpoint`: what an operator "
                            "changes once would answer every later request")
    for key in ("pinned", "client_certificate"):
        if key in fields and not fields.get("tls", "").startswith("intercept"):
            yield key, ("is of rules that intercept: add tls = \"intercept\" or "
                        "\"intercept_http\"")
    for key in ("shared", "unrecorded", "recording_queue", "recording_queue_timeout"):
        if key in fields and "recording" not in fields:
            yield key, "is of rules that record: add `recording`"
