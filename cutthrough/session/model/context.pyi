from collections.abc import Mapping
from typing import Any, NamedTuple

from cutthrough.net.dns.resolver import Resolver
from cutthrough.net.poller import Poller
from cutthrough.net.source_address import Source
from cutthrough.policy.limits import Limiter
from cutthrough.policy.parents import Registry
from cutthrough.policy.snapshot import Snapshot
from cutthrough.session.model.client import Journal
from cutthrough.session.model.counters import Page
from cutthrough.session.model.flight_recorder import FlightRecorder
from cutthrough.session.model.idle_pool import IdlePool
from cutthrough.session.model.origin_streams import Carriers
from cutthrough.session.model.standby import Standby

class ConnectionOptions(NamedTuple):
    timeouts: Mapping[str, float]
    lifetime: float
    max_line: int
    max_head: int
    max_fields: int
    max_response_head: int
    max_body: int
    max_connections: int
    splice: bool
    min_rate: int
    min_rate_grace: float
    http2_streams: int
    retry_without_sni: bool
    peeks: bool
    peeks_ja4: bool
    peeks_ja3: bool
    prints: int
    client_tls: int
    passes_offers: bool

class Context:
    origin_transport: int
    parents: Registry
    journal: Journal
    observer: object
    answer_cache: object
    player: object
    room: object
    rate_queue: Any
    recording: int
    worker: int
    tally: object
    recorder: FlightRecorder
    verifier: Any
    sources: dict[int, Source] | None
    standbys: dict[int, Standby] | None
    carriers: Carriers | None
    pacs: list[Any]
    live: int
    busy: int
    def __init__(
        self,
        *,
        poller: Poller,
        idle_pool: IdlePool,
        journal: Journal,
        page: Page,
        resolver: Resolver,
        origin: str,
        via: str,
    ) -> None: ...
    def configure(
        self, snapshot: Snapshot, limiter: Limiter, options: ConnectionOptions
    ) -> None: ...
    def heed_breakpoints(self, on: bool) -> None: ...
    def renew_client_checks(self) -> None: ...
    def start_draining(self) -> None: ...
