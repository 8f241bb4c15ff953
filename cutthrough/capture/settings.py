"""The writer's part of the configuration: its database, bounds, and redaction."""

import socket

import msgspec

from cutthrough.config.config import Config
from cutthrough.policy.source import Policy


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of 0 are none. Names of fields and keys are lower case."""

    database: str                            # a path, or a URL with its password
    count: int                               # exchanges
    bytes: int
    age: float                               # seconds
    credentials: bool                        # keep the values of CREDENTIALS
    fields: tuple[str, ...]                  # of heads, beside these
    query: tuple[str, ...]                   # keys of URLs and forms
    json: tuple[str, ...]                    # paths in bodies
    program: str = ""                        # whose rows these are, in a shared one
    form: str = "text"                       # of the writer's own messages


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to the writer; integers are descriptors."""

    settings: Settings
    rings: int
    wake: int


def settings_of(config: Config, policy: Policy) -> Settings | None:
    """None: nothing is captured."""
    if not (policy.captures and config.capture_database):
        return None
    return Settings(
        database=config.capture_database, count=config.capture_count,
        bytes=config.capture_bytes, age=config.capture_age,
        credentials=config.capture_credentials, fields=config.capture_redact_fields,
        query=config.capture_redact_query, json=config.capture_redact_json,
        program=config.capture_program or socket.gethostname() or "cutthrough",
        form=config.error_log_format)
