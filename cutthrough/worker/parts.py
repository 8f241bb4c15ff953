"""A worker's parts of a generation, and how the next one takes its place (R73)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cutthrough.activity.watcher import Watcher
from cutthrough.config.config import Config
from cutthrough.config.listeners import Listener
from cutthrough.config.log_format import PEEKED, costly_codes
from cutthrough.exchange.redaction.json_redactor import JsonRedactor
from cutthrough.exchange.redaction.redactor import Options, Redactor, hide
from cutthrough.exchange.work import Gate
from cutthrough.generation.generation import Generation
from cutthrough.generation.hook import Tally
from cutthrough.generation.operator_code import code_in_force, restore_code
from cutthrough.generation.pac import Pac, make_pac
from cutthrough.generation.snapshots import Facts, make_snapshot
from cutthrough.generation.sources import SourceNumbers
from cutthrough.generation.tls_files import client_checks
from cutthrough.log.hidden import forget_keys, hide_keys
from cutthrough.net import sends
from cutthrough.policy.known import Known
from cutthrough.policy.ledger import Ledger
from cutthrough.policy.limits import Limiter
from cutthrough.policy.snapshot import HostAddresses, Snapshot
from cutthrough.process.descriptors import most_connections
from cutthrough.session.accept import ConnectionSink
from cutthrough.session.model.context import ConnectionOptions, Context
from cutthrough.session.model.idle_pool import IdlePool
from cutthrough.session.model.origin_streams import Carriers
from cutthrough.session.model.prints import prints_wanted
from cutthrough.tape.observer import Capture
from cutthrough.verify.verifier import Verifier
from cutthrough.worker.parent_checks import ParentChecks
from cutthrough.worker.parent_rows import ParentRows
from cutthrough.worker.parent_standby import ParentStandby
from cutthrough.worker.recordings import Recordings
from cutthrough.worker.tally import RuleTally
from cutthrough.worker.tls_interception import Numbers, TlsInterception
from cutthrough.worker.tls_listeners import (
    TlsListeners,
    find_again,
    prepare_records,
)
from cutthrough.worker.tls_parents import TlsParents
from cutthrough.worker.transaction import Transaction


@dataclass(kw_only=True)
class Parts:
    """All that a generation configures in a worker.

    `listeners`: those that the worker started with; `bound`: addresses that are no
    destinations (R20).
    """

    listeners: Sequence[Listener]
    bound: Sequence[tuple[str, int]]
    context: Context
    hosts: HostAddresses
    known: Known
    ledger: Ledger
    idle_pool: IdlePool
    carriers: Carriers
    verifier: Verifier
    tls: TlsListeners
    interception: TlsInterception
    tls_parents: TlsParents
    rows: ParentRows
    by_rule: RuleTally
    checks: ParentChecks
    standby: ParentStandby
    recordings: Recordings
    capture: Capture | None
    watcher: Watcher | None
    tally: Tally
    gate: Gate
    sources: SourceNumbers = field(default_factory=SourceNumbers)
    sinks: list[tuple[int, ConnectionSink]] = field(default_factory=list)
    capturing: Capture | None = None        # the capture, if it has anything to do
    client_checks: object = None            # None: no generation is in force yet

    def prepare(self, generation: Generation) -> Transaction:
        """Makes all that the generation needs. Raises ValueError if it cannot be used,
        and then nothing has changed."""
        transaction = Transaction(generation)
        transaction.on_discard(restore_code, code_in_force())
        try:
            self._prepare(generation, transaction)
        except BaseException:
            transaction.discard()
            raise
        return transaction

    def _prepare(self, generation: Generation, transaction: Transaction) -> None:
        config = generation.config
        numbers = self.interception.prepare(generation.interception, transaction)
        sources = self.sources.copy()
        parents = self.context.parents
        transaction.on_discard(parents.shrink, len(parents.standings))
        facts = Facts(hosts=self.hosts, tally=self.tally, known=self.known,
                      sources=sources, registry=parents)
        snapshot = make_snapshot(
            generation, [*self.bound, *generation.own], facts,
            self.tls_parents.prepare(generation, transaction), numbers.origins)
        limiter = Limiter(
            self.ledger, generation.policy, most=config.max_connections_total,
            most_of_client=config.max_connections_per_client)
        self.tls.prepare(generation, transaction)
        checks = client_checks(generation.config, generation.tls)
        if self.client_checks not in (None, checks):
            transaction.on_commit(self.context.renew_client_checks)
        transaction.on_commit(setattr, self, "client_checks", checks)
        prepare_records(config, transaction)
        pacs = self._make_pacs(generation)
        # The first step that is of this generation alone: it converts every number
        # before it assigns the first
        transaction.on_commit(
            self._configure_context, config, snapshot, limiter, numbers,
            {*costly_codes(config.access_log_format)},
            config.max_connections or most_connections())
        transaction.on_commit(self._assign, sources, pacs)
        transaction.on_commit(hide_keys, {
            *config.redact_query, *config.capture_redact_query,
            *config.recording_redact_query}, _find_members(
                config.redact_json + config.capture_redact_json
                + config.recording_redact_json), id(self))
        transaction.on_commit(self.gate.bound, config.collected_bodies)
        transaction.on_commit(self.tally.breakpoints.hide, Redactor(Options(
            fields=config.redact_fields + config.capture_redact_fields,
            query=config.redact_query + config.capture_redact_query,
            json=config.redact_json + config.capture_redact_json,
            body=config.redact_body)))
        transaction.on_commit(
            self.idle_pool.configure, config.upstream_idle,
            config.upstream_idle_per_origin, config.upstream_idle_timeout)
        transaction.on_commit(
            self.carriers.configure,
            config.upstream_idle_timeout if config.upstream_idle else 0.0,
            config.connect_timeout, config.response_timeout)
        transaction.on_commit(
            self.verifier.configure, config.auth_backoff, config.auth_timeout)
        transaction.on_commit(self._count_by_rule, config.rule_metrics)
        self.rows.prepare(snapshot.ways, transaction)
        self.checks.prepare(config, snapshot.ways, transaction)
        self.standby.prepare(snapshot.ways, config.upstream_idle_timeout, transaction)
        self.recordings.prepare(generation, snapshot, transaction)
        transaction.on_commit(self._observe, generation)

    def _count_by_rule(self, is_wanted: bool) -> None:
        self.context.tally = self.by_rule if is_wanted else None

    def _make_pacs(self, generation: Generation) -> list[Pac | None]:
        pacs: list[Pac | None] = [*self.context.pacs]
        listeners = generation.config.all_listeners
        for n, at in find_again(self.listeners, listeners):
            row = listeners[at]
            pacs[n] = make_pac(
                row, generation.config, generation.policy) if row.pac else None
        return pacs

    def _configure_context(self, config: Config, snapshot: Snapshot, limiter: Limiter,
                           numbers: Numbers, in_log: set[str], most: int) -> None:
        self.context.configure(snapshot, limiter, ConnectionOptions(
            timeouts={
                name: getattr(config, name)
                for name in config.__struct_fields__
                if name.endswith("_timeout")
            },
            lifetime=config.lifetime,
            max_line=config.max_line,
            max_head=config.max_head,
            max_fields=config.max_fields,
            max_response_head=config.max_response_head,
            max_body=config.max_body,
            max_connections=most,
            splice=config.splice,
            min_rate=config.min_rate,
            min_rate_grace=config.min_rate_grace,
            http2_streams=config.http2_streams,
            retry_without_sni=config.retry_without_sni,
            peeks=config.peek_tunnels or bool(in_log & PEEKED),
            peeks_ja4=config.peek_tunnels or "ct::ja4" in in_log,
            peeks_ja3="ct::ja3" in in_log
            or (config.peek_tunnels and config.access_log_format == "json"),
            prints=prints_wanted(
                config.fingerprints, snapshot.hook is not None, in_log,
                snapshot.acl.policy if snapshot.acl else None),
            client_tls=numbers.client_tls,
            passes_offers=numbers.passes_offers,
        ))
        if config.collect_sends:
            sends.turn_on()             # if it is forbidden, `doctor` says so
        else:
            sends.turn_off()

    def _assign(self, sources: SourceNumbers, pacs: list[Pac | None]) -> None:
        self.sources = sources
        self.context.sources = sources.by_number
        self.context.pacs = pacs
        for n, sink in self.sinks:
            sink.set_tls(self.tls.numbers[n])

    def _observe(self, generation: Generation) -> None:
        capture = self.capture
        if capture is not None:
            capture.configure(
                generation.config.capture_body, generation.config.recording_body)
            # Requests and tunnels in hand keep their rules, and it frees their parts
            if not (generation.policy.captures or generation.policy.records
                    or capture.tapped or self.context.busy):
                capture = None
        self.capturing = capture
        if self.watcher is None:
            self.context.observer = capture
        else:
            self.watcher.behind = capture
            self.context.observer = self.watcher

    def close(self) -> None:
        """Ends the parts that connections need no more, before these are closed."""
        self.checks.close()
        self.standby.close()
        self.recordings.close()

    def release(self) -> None:
        """Frees the TLS contexts, when the connections are closed."""
        forget_keys(id(self))
        self.tls.close()
        self.tls_parents.close()
        self.interception.close()


def _find_members(paths: tuple[str, ...]) -> Callable[[bytes], bytes] | None:
    """Removes the values at these paths in JSON from a line."""
    return JsonRedactor(paths, hide).in_line if paths else None
