"""The way of a request in words, for `explain`: its source, its route, its parent."""

from cutthrough.config.config import Config


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
