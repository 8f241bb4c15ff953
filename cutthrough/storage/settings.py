"""The writer's part of the configuration: its database, bounds, and redaction."""

import hashlib
import socket

import msgspec

from cutthrough.config.config import Config
from cutthrough.config.recordings import scopes_of
from cutthrough.exchange.redaction.redactor import Options
from cutthrough.policy.source import Policy


class Recordings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of recordings: their directory, and the settings of a new session.
    """

    directory: str
    url: str                                 # of PostgreSQL; "": sessions are files
    session: str
    session_field: str = ""                  # names the session instead; "": none does
    session_user: bool = False               # likewise: the user
    count: int
    age: float                               # seconds
    fields: tuple[str, ...]
    query: tuple[str, ...]
    json: tuple[str, ...]
    body: tuple[str, ...]                    # expressions
    scopes: tuple[dict[str, tuple[str, ...]], ...] = ()  # further ones of routes
    cuts: str = "streams"                    # the kinds recorded if left early
    hooks: str                               # module:class
    code: str                                # a hash of it: another needs a new process


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of spans: their target, and their exchanges."""

    url: str
    ratio: float                             # of those without a traceparent
    users: bool                              # name them


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of 0 are none. Names of fields and keys are lower case."""

    database: str                            # a path, a URL with its password; "": none
    count: int                               # exchanges
    bytes: int
    age: float                               # seconds
    credentials: bool                        # keep the values of CREDENTIALS
    fields: tuple[str, ...]                  # of heads, beside these
    query: tuple[str, ...]                   # keys of URLs and forms
    json: tuple[str, ...]                    # paths in bodies
    body: tuple[str, ...] = ()               # expressions
    compress: bool = False                   # bodies, in zstd
    program: str = ""                        # the owner of the rows, in a shared one
    form: str = "text"                       # of the writer's own messages
    recordings: Recordings | None = None     # None: no rule records
    traces: Traces | None = None             # None: there are no spans

    @property
    def redaction(self) -> Options:
        return Options(fields=self.fields, query=self.query, json=self.json,
                       body=self.body, credentials=self.credentials)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to the writer; integers are descriptors."""

    settings: Settings
    rings: int
    wake: int


def redaction_of(config: Config) -> Options:
    return Options(
        fields=config.redact_fields + config.capture_redact_fields,
        query=config.redact_query + config.capture_redact_query,
        json=config.redact_json + config.capture_redact_json, body=config.redact_body,
        credentials=config.capture_credentials)


def settings_of(config: Config, policy: Policy) -> Settings | None:
    """None: nothing is captured or recorded."""
    captures = policy.captures and config.capture_database
    traces = Traces(url=config.trace_url, ratio=config.trace_ratio,
                    users=config.trace_users) if (
        policy.captures and config.trace_url) else None
    if not (captures or policy.records or traces):
        return None
    redaction = redaction_of(config)
    return Settings(
        database=config.capture_database if captures else "",
        count=config.capture_count,
        bytes=config.capture_bytes, age=config.capture_age,
        credentials=redaction.credentials, fields=redaction.fields,
        query=redaction.query, json=redaction.json, body=redaction.body,
        compress=config.capture_compress,
        program=config.capture_program or socket.gethostname() or "cutthrough",
        form=config.error_log_format, traces=traces,
        recordings=recordings_of(config, policy) if policy.records else None)


def recordings_of(config: Config, policy: Policy) -> Recordings:
    code = policy.code.get(config.recording_hooks.partition(":")[0])
    return Recordings(
        directory=config.recording_directory, url=config.recording_url,
        session=config.recording_session,
        session_field=config.recording_session_field,
        session_user=config.recording_session_user,
        count=config.recording_count, age=config.recording_age,
        fields=config.redact_fields + config.recording_redact_fields,
        query=config.redact_query + config.recording_redact_query,
        scopes=scopes_of(config.recording_routes),
        json=config.redact_json + config.recording_redact_json,
        body=config.redact_body + config.recording_redact_body,
        cuts=config.recording_cut, hooks=config.recording_hooks,
        code="" if code is None else hashlib.sha256(code.text).hexdigest())
