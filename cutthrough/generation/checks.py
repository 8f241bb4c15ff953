"""The supervisor's checks before it opens anything."""

import errno
import importlib.util
import os
import socket
import stat
from collections.abc import Collection, Iterator

import msgspec

from cutthrough.bundle.cache import CURRENT, Cache
from cutthrough.bundle.manifest import NO_LABEL, BundleError, Label
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.database import FORM
from cutthrough.config.files import describe_error
from cutthrough.config.log_target import read_target
from cutthrough.config.mistake import Mistake, nearest, raise_all
from cutthrough.config.parents import DIRECT
from cutthrough.config.values import show_count
from cutthrough.exchange.packing import NoZstd, Packer
from cutthrough.generation.ca_certificate import read_ca_certificate
from cutthrough.generation.error_pages import read_error_pages
from cutthrough.generation.generation import Generation
from cutthrough.generation.interception import (
    check_interception,
    read_interception,
)
from cutthrough.generation.operator_code import find_function, find_optional
from cutthrough.generation.pac import PacError, make_pac
from cutthrough.generation.recordings import check_recordings, make_hooks
from cutthrough.generation.sources import SourceNumbers, refused_options
from cutthrough.generation.ticket_keys_file import read_ticket_keys
from cutthrough.generation.tls_files import (
    check_parents,
    check_tls,
    read_parent_files,
    read_tls_files,
)
from cutthrough.generation.tracker import make_tracker
from cutthrough.net.listener import set_transparent
from cutthrough.net.unix_listener import find_owner
from cutthrough.policy.source import Policy, PolicyError, Rule
from cutthrough.process.cpus import pinned_cpus

# Characters of the token that signs entries: who reads Redis can try tokens
LEAST_TOKEN = 16
# Of the key of shared credentials, which lets in whoever it is used for
LEAST_KEY = 32


def complete(generation: Generation) -> Generation:
    """Adds the contents of the files of certificates, and validates all.

    Raises PolicyError and ConfigError.
    """
    generation = msgspec.structs.replace(
        generation, tls=read_tls_files(generation.config),
        parent_files=read_parent_files(generation.config),
        ca_certificate=read_ca_certificate(generation.config),
        ticket_keys=read_ticket_keys(generation.config),
        interception=read_interception(generation.config),
        error_pages=read_error_pages(generation.config),
        bundle=read_label(generation.config))
    validate(generation)
    return generation


def read_label(config: Config) -> Label:
    """Returns the label of the current bundle. Raises ConfigError."""
    if not config.bundle_url:
        return NO_LABEL
    try:
        manifest = Cache(config.bundle_cache).manifest(CURRENT)
    except BundleError as error:
        raise ConfigError("", "bundle_cache", f"{CURRENT}: {error}") from None
    return NO_LABEL if manifest is None else manifest.label


def validate(generation: Generation) -> None:
    """Compiles the policy as each worker will; checks that CPUs and owners exist.

    Raises PolicyError and ConfigError.
    """
    from cutthrough.policy.limits import Limiter

    pinned_cpus(generation.config)
    check_owners(generation.config)
    check_pacs(generation)
    Limiter(None, generation.policy)
    if generation.policy.source:
        from cutthrough.policy.acl import Acl

        Acl(generation.policy, SourceNumbers().number(generation.config.sources))
    if generation.config.policy_hook:
        find_function("policy_hook", generation.config.policy_hook,
                      generation.policy.hook)
    for option in ("auth_hook", "dns_hook"):
        find_optional(option, getattr(generation.config, option),
                      generation.policy.code)
    make_tracker(generation.config, generation.policy.code)
    if any(rule.filters or rule.breakpoint for rule in generation.policy.rules):
        from cutthrough.generation.filters import make_filters

        make_filters(generation.policy)
    make_hooks(generation.config, generation.policy)
    check_recordings(generation.config)
    check_routes(generation)
    check_fleet(generation.config)
    check_sources(generation.config)
    check_transparent(generation.config)
    check_capture(generation)
    if any(files.pairs for files in generation.tls):
        check_tls(generation.config, generation.tls)
    if generation.parent_files:
        check_parents(generation.config, generation.parent_files)
    check_interception(generation.interception, generation.policy)


def check_transparent(config: Config) -> None:
    """Raises ConfigError if this process may not open a listener for tproxy."""
    for number, row in enumerate(config.listeners):
        if row.transparent == "tproxy":
            try:
                with socket.socket() as sock:
                    set_transparent(sock, True)
            except OSError as error:
                raise ConfigError(
                    "", "listeners", f"{error.strerror}: tproxy needs CAP_NET_ADMIN, "
                    "and in a unit PrivateUsers=no",
                    path=(number, "transparent")) from None


def check_capture(generation: Generation) -> None:
    """Raises ConfigError if captures cannot be written."""
    path = generation.config.capture_file
    if generation.config.capture_compress:
        try:
            Packer()
        except NoZstd as error:
            raise ConfigError("", "capture_compress", str(error)) from None
    if generation.config.capture_url:
        check_database_url("capture_url", generation.config.capture_url)
    if generation.config.recording_url:
        check_database_url("recording_url", generation.config.recording_url)
    if generation.config.trace_url and not has_exporter():
        raise ConfigError("", "trace_url", "OpenTelemetry's exporter is not installed: "
                          "pip install 'cutthrough[otlp]'")
    if not generation.policy.captures or not path:
        return
    try:
        if not os.path.lexists(path):
            check_folder(os.path.dirname(path) or ".")
        elif not stat.S_ISREG(os.lstat(path).st_mode):
            raise ConfigError("", "capture_file", "is not a regular file")
        elif not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    except OSError as error:
        raise ConfigError("", "capture_file", error.strerror or str(error)) from None


def has_exporter() -> bool:
    """Is OpenTelemetry's exporter there? A process of its own imports it."""
    try:
        spec = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        return False
    return spec is not None


def check_database_url(key: str, url: str) -> None:
    """Raises ConfigError if no connection can be tried. The server may be away."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("", key, f"the package {error.name} is not "
                          "installed: pip install 'cutthrough[postgres]'") from None
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:                    # its text has the URL (R37)
        raise ConfigError("", key, "libpq cannot read it: it has the form "
                          f"{FORM}") from None


def check_sources(config: Config) -> None:
    """Raises ConfigError if this process may not set a source's mark or device."""
    mistakes: list[Mistake] = []
    for row in config.sources:
        for key, reason in refused_options(row):
            mistakes.append(ConfigError("", "sources", reason, path=(row.name, key)))
    raise_all(mistakes)


def check_owners(config: Config) -> None:
    """Raises ConfigError if a listener's owner is no user or group of this host."""
    for number, listener in enumerate(config.listeners):
        try:
            find_owner(listener.owner)
        except OSError as error:
            raise ConfigError("", "listeners", str(error.strerror),
                              path=(number, "owner")) from None


def check_pacs(generation: Generation) -> None:
    """Raises ConfigError if a listener's file for browsers is too long."""
    config = generation.config
    for number, listener in enumerate(config.listeners):
        try:
            make_pac(listener, config, generation.policy)
        except PacError as error:
            raise ConfigError("", "listeners", str(error),
                              path=(number, "pac")) from None


def check_routes(generation: Generation) -> None:
    """Raises PolicyError with every rule that has an unknown route or origin."""
    config = generation.config
    known = {DIRECT, *(parent.name for parent in config.parents),
             *(group.name for group in config.groups)}
    origins = {origin.name for origin in config.origins}
    raise_all([
        PolicyError(rule.source, "route", "no parent or group of the configuration is "
                    f"named {rule.route!r}")
        for rule in generation.policy.rules if rule.route and rule.route not in known
    ] + [
        PolicyError(rule.source, "origin", "no origin of the configuration is named "
                    f"{rule.origin!r}" + near(rule.origin, origins))
        for rule in generation.policy.rules
        if rule.origin and rule.origin not in origins])


def near(name: str, known: Collection[str]) -> str:
    """Returns a question for the end of a message, with the most similar known name; ""
    if there is none."""
    similar = nearest(name, known)
    return f"; did you mean {similar}?" if similar else ""


def find_notes(generation: Generation) -> list[str]:
    """Returns notes about a valid configuration: rules that match less than they seem
    to, or cannot hold."""
    return [*_note_via(generation), *_note_paths(generation),
            *_note_parents(generation), *_note_origins(generation),
            *_note_sharing(generation), *_note_replays(generation)]


def _note_via(generation: Generation) -> Iterator[str]:
    if generation.config.via == "off":
        yield ("via: without Via a request that another proxy, or a balancer, sends "
               "back here goes round until a timeout or a limit ends it")


def _note_paths(generation: Generation) -> Iterator[str]:
    """Rules about paths, beside which an unread tunnel leads to the same hosts."""
    allowed = generation.config.allowed_ports
    opened = [rule for rule in generation.policy.rules
              if rule.tls.startswith("intercept")]
    for rule in generation.policy.rules:
        if not rule.paths or rule.origin or (
                rule.methods and "CONNECT" not in rule.methods):
            continue
        if any(_may_meet(rule, other, generation.policy) for other in opened):
            continue
        if allowed is None or not rule.ports or any(
                first <= port <= last for first, last in rule.ports
                for port in allowed):
            yield (f"{rule.source}: `paths` matches no tunnel: other rules decide "
                   "about HTTPS and SOCKS to the same hosts")


def _note_origins(generation: Generation) -> Iterator[str]:
    """Rules for origins that a Host with a name cannot meet."""
    for rule in generation.policy.rules:
        if rule.origin and rule.addresses:
            yield (f"{rule.source}: `addresses` matches only a Host that is an "
                   "address: a name for an origin is not resolved")


def _note_replays(generation: Generation) -> Iterator[str]:
    """Tunnels that a rule opens, with requests that a later rule replays."""
    rules = generation.policy.rules
    for i, rule in enumerate(rules):
        if not rule.tls.startswith("intercept") or rule.recording:
            continue
        for later in rules[i + 1:]:
            if later.recording in ("replay", "cache", "spy") and (
                    _may_meet(rule, later, generation.policy)):
                yield (f"{rule.source}: opens tunnels whose requests {later.source} "
                       f"replays: add recording = \"{later.recording}\"; else an "
                       "origin is dialled if not every GET and POST to it is replayed")
                break


def _note_sharing(generation: Generation) -> Iterator[str]:
    """The recordings that several users share (R75)."""
    config, policy = generation.config, generation.policy
    if len({*policy.users, config.user} - {""}) < 2:
        return
    if policy.captures and config.capture_database:
        yield ("captured requests are of all users: a token that may read /flows, and "
               f"whoever reads {config.capture_file or 'the database'}, has them all")
    if config.recording_session_field and policy.records:
        yield (f"recording_session_field: a request names its session by "
               f"{config.recording_session_field}, so each user can be answered with "
               "the recordings of others")
    for rule in policy.rules:
        if rule.recording == "cache" and rule.shared:
            yield (f"{rule.source}: `shared`: users get each other's answers, but for "
                   "those to requests with credentials, and private ones")
        elif rule.recording in ("replay", "spy") and not config.recording_session_user:
            yield (f"{rule.source}: users of the rule share one session: each is "
                   "answered with the recordings of all")


def _may_meet(rule: Rule, other: Rule, policy: Policy) -> bool:
    """Whether some host and some user may be of both rules, as far as names tell."""
    return _may_share_user(rule, other, policy) and (
        not rule.hosts or not other.hosts or any(
            _covers(a, b) or _covers(b, a) for a in rule.hosts for b in other.hosts))


def _may_share_user(rule: Rule, other: Rule, policy: Policy) -> bool:
    """A user that the policy does not list may have any groups: of a hook."""
    if not (rule.users or rule.groups) or not (other.users or other.groups) or (
            rule.groups and other.groups) or {*rule.users} & {*other.users}:
        return True
    return any(name not in policy.users or {*policy.users[name].groups} & {*groups}
               for users, groups in ((rule.users, other.groups),
                                     (other.users, rule.groups))
               for name in users if groups)


def _covers(pattern: str, host: str) -> bool:
    return pattern in (host, "*") or (
        pattern.startswith("*.") and host.endswith(pattern[1:]))


def _note_parents(generation: Generation) -> list[str]:
    """Rules that cannot hold, because a parent resolves the names (R43)."""
    config, policy = generation.config, generation.policy
    there = {parent.name for parent in config.parents if parent.resolve == "parent"}
    groups = {group.name for group in config.groups if there & {*group.parents}}
    named = {config.route, *(rule.route for rule in policy.rules)}
    if not (there | groups) & named:
        return []
    where = " and ".join(sorted(there))
    notes = [f"{where} resolves names: the address floor holds for addresses in "
             "requests only"] if config.floor else []
    for rule in policy.rules:
        if rule.addresses and rule.action == "deny":
            notes.append(f"{rule.source}: cannot deny a name that {where} resolves, "
                         "because its addresses are not known here")
        elif rule.addresses:
            notes.append(f"{rule.source}: cannot allow a name that {where} resolves: "
                         "such a request is refused")
    return notes


def check_fleet(config: Config) -> None:
    """Raises ConfigError if `fleet_url` is set and cannot be used, or if this program
    cannot be registered there."""
    if config.fleet_register and not config.fleet_url:
        raise ConfigError("", "fleet_register", "needs fleet_url: the Redis of the "
                          "registry")
    if config.fleet_register and config.admin_token != "-" and (
            len(config.admin_token) < LEAST_TOKEN):
        raise ConfigError("", "fleet_register", "needs an admin_token of "
                          f"{LEAST_TOKEN} characters or more, which signs the entry: "
                          "make one with `openssl rand -hex 32`")
    if config.share_credentials and not config.fleet_url:
        raise ConfigError("", "share_credentials", "needs fleet_url: the Redis that "
                          "the hosts share")
    if config.share_credentials and config.credentials_key != "-" and (
            len(config.credentials_key) < LEAST_KEY):
        raise ConfigError("", "share_credentials", "needs a credentials_key of "
                          f"{LEAST_KEY} characters or more: make one with `openssl "
                          "rand -hex 32`")
    if not config.fleet_url:
        return
    try:
        from cutthrough.generation.redis_client import make_client
    except ImportError as error:
        raise ConfigError("", "fleet_url", f"the package {error.name} is not "
                          "installed: pip install 'cutthrough[redis]'") from None
    make_client(config)


def describe(error: Exception) -> str:
    """Returns the error as one line of the error log."""
    if isinstance(error, OSError):
        return f"{error.filename or 'cannot open'}: {describe_error(error)}"
    others = len(error.others) if isinstance(error, Mistake) else 0
    return str(error) + (f" (and {show_count(others, 'more mistake')}; "
                         "`cutthrough check` lists all)" if others else "")


def check_log(text: str, *, create: bool = True) -> None:
    """Opens the access log's target once. Raises ConfigError if it cannot be used.

    Without `create` a missing file is not made; its directory is checked instead.
    """
    target = read_target(text)
    # O_NONBLOCK: without it, opening a FIFO that has no reader waits for ever.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    try:
        if target.kind == "file":
            try:
                os.close(os.open(target.path, flags, 0o640))
            except FileNotFoundError:
                if create:
                    raise
                check_folder(os.path.dirname(target.path))
        elif target.path:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                probe.connect(target.path)
    except OSError as error:
        raise ConfigError(target.path, "access_log", error.strerror or "") from None


def check_folder(path: str) -> None:
    """Raises OSError if no file can be made in this directory."""
    os.stat(path)
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
