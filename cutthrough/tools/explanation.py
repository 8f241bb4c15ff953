"""The results of `cutthrough explain`, step by step."""

import msgspec

from cutthrough.tools.dry_run import OK


class Place(msgspec.Struct, kw_only=True):
    """One address, and the decision about it."""

    address: str
    kind: str                   # its class, by class_of
    ours: bool                  # whether it belongs to this host
    outcome: str
    rule: str
    report: bool
    opens_floor: bool


class Explanation(msgspec.Struct, kw_only=True):
    """The output of `--json`. "" or []: the decision was made before that step."""

    method: str
    target: str
    user: str
    groups: tuple[str, ...]
    client: str
    host: str = ""
    port: int = 0
    path: str = ""              # and query; "": a tunnel has none
    readings: list[str] = []    # of the path; none: it is unclear
    remark: str = ""            # the mistake in the target, if it is known
    port_rule: str = ""
    rule: str = ""              # that decides by the name
    by_name: str = ""           # the outcome by the name
    hook: str = ""
    hook_outcome: str = ""
    dns: str = ""               # source of the addresses, or why none was needed
    dns_ms: float = 0.0
    addresses: list[Place] = []
    floor: bool = False
    source: str = ""            # of the connection; "": the kernel selects it
    route: str = ""             # parent, group or `direct`
    route_by: str = ""          # its source: a rule, the option, or nothing
    parent: str = ""            # the member taken while all work; "": not known here
    for_origin: bool = False    # the target is a path: a request in origin form
    origin: str = ""            # that the request is for; "": none
    origin_by: str = ""         # its source: a rule, or the option
    server: str = ""            # that gets it while all work; "": not known here
    faults: tuple[str, ...] = ()        # names in the rule
    filters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    tunnel: str = ""            # the outcome by a tunnel's first bytes; or "maybe"
    tunnel_rule: str = ""       # that decides by them
    tls: str = ""               # intercept or refuse: the fate of TLS inside
    pinned: str = ""            # pass: not where clients rejected our certificate
    client_certificate: str = ""    # of [client_certificates], for the origin; "": none
    limits: str = ""
    limit_values: dict[str, float] = {}
    capture: str = ""           # head or full; "": nothing is kept
    report: bool = False
    connect: "Explanation | None" = None    # of the tunnel that an https:// URL goes by
    outcome: str = OK
    status: int = 0
    remedy: str = ""            # what would let it pass; "": nothing here is known to


def remedy_of(result: Explanation, has_policy: bool) -> str:
    """The remedies of an operator for a refusal by the floor or the port."""
    if result.outcome == "port_denied":
        return f"add {result.port} to the option connect_ports"
    if result.outcome != "address_denied":
        return ""
    refused = [place for place in result.addresses if place.outcome == result.outcome]
    if any("cloud-metadata" in place.kind for place in refused):
        return "none: it is a cloud's metadata service, which hands out credentials"
    addresses = ", ".join(f'"{place.address}"' for place in refused)
    where = "in the policy" if has_policy else "in a policy, which --policy names,"
    text = (f'a rule {where} with action = "allow" and addresses = [{addresses}] opens '
            "the floor")
    if result.dns.startswith("not needed"):
        return text
    return text + "; if the name is not yours, it may be aimed at your network"


def show_places(result: Explanation) -> list[str]:
    """The lines about the addresses."""
    if not result.addresses:
        return []
    width = max(len(place.address) for place in result.addresses)
    kinds = max(len(place.kind) + 4 * place.ours for place in result.addresses)
    lines = []
    for place in result.addresses:
        kind = f"{place.kind}{' own' if place.ours else ''}"
        floor = "  opens the floor" if place.opens_floor and result.floor else ""
        lines.append(f"{place.address:<{width}}  {kind:<{kinds}}  {place.outcome}  "
                     f"{place.rule}{floor}")
    return lines
