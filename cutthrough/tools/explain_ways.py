"""The way of a request in words, for `explain`: its source, its route, its parent, its
origin."""

from cutthrough.config.config import Config
from cutthrough.tools.explanation import Explanation


def show_source(config: Config, name: str) -> str:
    """The name of a source, and the addresses of its connections."""
    row = next(row for row in config.sources if row.name == name)
    parts = [*row.addresses, *([row.prefix] if row.prefix else [])]
    if len(parts) > 1 or row.prefix:
        parts.append(row.choose)
    parts += [f"{key} {value}" for key, value in (
        ("device", row.device), ("mark", row.mark), ("dscp", row.dscp))
        if value not in ("", -1)]
    return f"{name}  {' '.join(parts)}"


def show_route(config: Config, route: str, route_by: str) -> str:
    """The way, the choice of its members, and the reason."""
    for group in config.groups:
        if group.name == route:
            route = f"{route}  {group.choose} {' '.join(group.parents)}"
            break
    return f"{route}  ({route_by})" if config.parents else route


def show_parent(config: Config, route: str, parent: str) -> str:
    """The chosen member, and the parents before it."""
    if not parent:
        return "not known here: a worker chooses by its own requests"
    by_name = {row.name: row for row in config.parents}
    member, text = by_name.get(parent), parent
    while member is not None:
        text += f"  {member.url}{f' via {member.via}' if member.via else ''}"
        member = by_name.get(member.via)
    others = any(group.name == route and len(group.parents) > 1
                 for group in config.groups)
    return f"{text}  while it works" if others else text


def find_origin(config: Config, way: str, rule: str) -> tuple[str, str]:
    """The origin of a request in origin form, and what names it; "": none. `way`: the
    name in the rule, of an origin or of a route."""
    if any(row.name == way for row in config.origins):
        return way, f"origin of {rule}"
    if config.origin:
        return config.origin, "the option origin"
    return "", ""


def show_origin(config: Config, result: Explanation) -> list[tuple[str, str]]:
    """The lines about the origin and its server."""
    row = next((row for row in config.origins if row.name == result.origin), None)
    if row is None:                         # the option is a URL
        return [("origin", f"{result.origin}  ({result.origin_by})")]
    url = next((server.url for server in row.servers
                if server.name == result.server), "")
    if not url:
        url = "not known here: a worker chooses by its own requests"
    elif len(row.urls) > 1:
        url += "  while it works"
    urls = f"  {row.choose} {' '.join(row.urls)}" if len(row.urls) > 1 else ""
    return [("origin", f"{row.name}{urls}  ({result.origin_by})"), ("server", url)]
