"""`cutthrough fleet`, and verbs with --fleet: over all programs of a registry in Redis.

Each registered program's admin listener is asked at the same time, each answer has its
program's name (host/pid), and those that failed are named with the reason. An entry of
the registry counts only if the admin token signed it (process/fleet_registry.py), and
the token is sent only where it is needed: for changes.
"""

import argparse
import asyncio
import http.client
import json
import os
import queue
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.settings import read_secret_file, variable_name
from cutthrough.config.values import split_address
from cutthrough.exchange.visible import visible
from cutthrough.process.fleet_registry import (
    MOST_BYTES,
    MOST_ENTRIES,
    READ,
    Entry,
    EntryError,
    entry_key,
    index_key,
    read_entry,
)
from cutthrough.tools.console import (
    UNSAFE,
    Listener,
    Unanswered,
    carry_out,
    find_token,
    query_of,
)
from cutthrough.tools.held import arming_of, show_armed, table_of
from cutthrough.tools.top import one_look

COLUMNS = ("proxy", "state", "version", "revision", "renewed", "conns", "req/s", "cpu")
# Of the changes, which take the token
READING = ("GET", "HEAD")

Action = Callable[[Listener], list[str]]


class Member(NamedTuple):
    """`renewed`: seconds since its entry was written, by Redis' clock."""

    entry: Entry
    renewed: float


class Answer(NamedTuple):
    """`failure`: why there is none, or a part is missing; "": it is whole."""

    member: Member
    lines: list[str]
    failure: str


class Registry(NamedTuple):
    """`wrong`: how many entries did not count, by reason."""

    members: list[Member]
    wrong: Mapping[str, int]


class Remote(Listener):
    """A client of the admin listener at `url`, http://host:port or https://host:port.
    Raises ValueError if it is neither."""

    def __init__(self, url: str, token: str, patience_s: float,
                 trust: ssl.SSLContext) -> None:
        scheme, mark, where = url.partition("://")
        if not mark or scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is no address of an admin listener")
        self._address = split_address(where)
        self._trust = trust if scheme == "https" else None
        self._patience_s = patience_s
        self._full_token = token
        super().__init__(where)

    def fetch(self, method: str, path: str, body: bytes | None = None,
              patience_s: float = 0.0) -> bytes:
        """`patience_s` is not used: the time is that of the command."""
        needs = method not in READING or path.startswith("/breakpoints")
        self._token = self._full_token if needs else ""
        return super().fetch(method, path, body, self._patience_s)

    def _connect(self, patience_s: float) -> http.client.HTTPConnection:
        host, port = self._address
        if self._trust is None:
            return http.client.HTTPConnection(host, port, timeout=patience_s)
        return http.client.HTTPSConnection(
            host, port, timeout=patience_s, context=self._trust)


def run(args: argparse.Namespace) -> int:
    """Runs a verb at every member; returns the exit status: 1 if some failed, 2 if none
    could be asked. Raises ConfigError."""
    if getattr(args, "admin", None):
        raise ConfigError("command line", "--admin", "is of one proxy, and --fleet of "
                          "all")
    action = action_of(args)
    token = find_token(args.token_file, os.environ)
    if not token:
        raise ConfigError("command line", "--token-file", "is missing: a fleet's "
                          "entries are signed with the admin token")
    trust, config = make_trust(args.cacert), find_config(args, os.environ)
    registry = read_registry(config, token)
    report_wrong(registry.wrong)
    if not registry.members:
        print(f"cutthrough: no proxy is registered as {config.fleet_prefix}",
              file=sys.stderr)
        return 2
    answers = ask_all(registry.members, action, token, args.timeout, trust)
    if args.verb == "fleet":
        show_fleet(answers, args.json)
    else:
        show_answers(answers, getattr(args, "json", False))
    failed = [got for got in answers if got.failure]
    for got in failed:
        print(f"cutthrough: {got.member.entry.name}: {got.failure}",
              file=sys.stderr)
    if not any(got.member.entry.url for got in answers):
        return 2
    return 1 if failed or registry.wrong else 0


def action_of(args: argparse.Namespace) -> Action:
    """The request to each member. Raises ConfigError."""
    if args.verb == "fleet":
        return lambda listener: [
            str(listener.read("GET", "/overview", "state")["state"])]
    if args.verb == "top":
        return lambda listener: one_look(listener, args.interval)
    if args.verb == "mode":
        return lambda listener: change_mode(
            listener, args.mode, args.session, args.json)
    if args.verb == "flows" and args.action == "held":
        if args.id:
            raise ConfigError("command line", "ID", "is of one proxy: name it with "
                              "--admin")
        return lambda listener: list_held(listener, args.json)
    if args.verb == "flows":
        return lambda listener: arm(listener, arming_of(args))
    if args.verb == "conns" and args.trace is not None:
        raise ConfigError("command line", "--trace", "is of one proxy: name it with "
                          "--admin")
    if args.verb in ("conns", "kill"):
        query_of(args)                       # a mistake is said once
    return lambda listener: carry_out(listener, args)


def change_mode(listener: Listener, mode: str | None, session: str | None,
                as_json: bool) -> list[str]:
    wanted = {name: value for name, value in (("mode", mode), ("session", session))
              if value is not None}
    said = listener.read("POST" if wanted else "GET",
                         "/mode" + (f"?{urlencode(wanted)}" if wanted else ""), "mode")
    if as_json:
        return [json.dumps(said)]
    return [f"mode {said['mode']}, session {said['session'] or 'as configured'}",
            *map(str, said.get("errors", ()))]


def arm(listener: Listener, arming: dict[str, Any]) -> list[str]:
    body = json.dumps(arming).encode()
    try:
        said = json.loads(listener.fetch("POST", "/breakpoints/armed", body))
        state, silent = show_armed(said), [*map(str, said["unanswered"])]
    except (ValueError, KeyError, TypeError):
        raise Unanswered(f"{listener.where}: answers without armed_s") from None
    listener.silent += silent
    return [state]


def list_held(listener: Listener, as_json: bool) -> list[str]:
    """Until when the program holds messages, and a table of those that it holds."""
    answer = listener.read("GET", "/breakpoints", "held")
    if as_json:
        return [json.dumps(answer)]
    held = answer["held"]
    return [show_armed(answer), *(table_of(held) if held else ())]


# The registry

def find_config(args: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    """The options of the fleet's Redis. Raises ConfigError."""
    name = variable_name("fleet_url_file")
    if args.fleet_url_file:
        url = read_secret_file(args.fleet_url_file, "command line", "--fleet-url-file")
    elif environ.get(name):
        url = read_secret_file(environ[name], "environment", name)
    else:
        url = environ.get(variable_name("fleet_url"), "")
    if not url:
        raise ConfigError("command line", "--fleet-url-file", "is missing: it has the "
                          "URL of the fleet's Redis")
    prefix = (args.fleet_prefix or environ.get(variable_name("fleet_prefix"))
              or "cutthrough")
    return Config(fleet_url=url, fleet_prefix=prefix)


def read_registry(config: Config, token: str) -> Registry:
    """Raises ConfigError if Redis cannot be read."""
    try:
        from redis import exceptions

        from cutthrough.generation.redis_client import explain
    except ImportError as error:
        raise ConfigError("", "fleet_url", f"the package {error.name} is not "
                          "installed: pip install 'cutthrough[redis]'") from None
    try:
        rows = msgspec.convert(
            asyncio.run(_read(config)), list[tuple[str, str, int]])
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        raise ConfigError("", "fleet_url", f"Redis {explain(error)[1]}") from None
    except (ValueError, msgspec.ValidationError):
        raise ConfigError("", "fleet_url", "Redis answers with other things"
                          ) from None
    key, now, wrong = entry_key(token), time.time(), Counter[str]()
    members = []
    for id, value, left_ms in rows:
        try:
            entry = read_entry(key, config.fleet_prefix, id, value, now)
        except EntryError as error:
            wrong[str(error)] += 1
        else:
            members.append(Member(entry, max(0.0, entry.lease - left_ms / 1000)))
    return Registry(sorted(
        members, key=lambda member: (member.entry.host, member.entry.pid)), wrong)


async def _read(config: Config) -> Any:
    from cutthrough.generation.redis_client import PATIENCE_S, Link

    link = Link(config)
    try:
        async with asyncio.timeout(3 * PATIENCE_S):
            return await link.run(READ, [index_key(config.fleet_prefix)],
                                  [MOST_ENTRIES, MOST_BYTES])
    finally:
        await link.close()


def report_wrong(wrong: Mapping[str, int]) -> None:
    for reason, count in wrong.items():
        left_out = ("1 entry of the registry was left out: it" if count == 1 else
                    f"{count} entries of the registry were left out: each of them")
        print(f"cutthrough: {left_out} {reason}", file=sys.stderr)


# Questions

def make_trust(path: str | None) -> ssl.SSLContext:
    """Raises ConfigError."""
    try:
        trust = ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("command line", "--cacert", f"{path}: "
                          f"{getattr(error, 'strerror', None) or error}") from None
    trust.hostname_checks_common_name = False
    return trust


def ask_all(members: Sequence[Member], action: Action, token: str, patience_s: float,
            trust: ssl.SSLContext) -> list[Answer]:
    """Asks all at the same time; a member without an answer in time has failed."""
    done: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
    answers = [Answer(member, [], f"no answer within {patience_s:g} s")
               for member in members]

    def work(number: int) -> None:
        done.put((number, ask(members[number], action, token, patience_s, trust)))

    for number in range(len(members)):       # nobody waits for one that hangs
        threading.Thread(target=work, args=(number,), daemon=True).start()
    deadline = time.monotonic() + patience_s
    for _ in members:
        try:
            number, got = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        answers[number] = got
    return answers


def ask(member: Member, action: Action, token: str, patience_s: float,
        trust: ssl.SSLContext) -> Answer:
    if not member.entry.url:
        return Answer(member, [], f"cannot be asked: {member.entry.unreachable}")
    try:
        # Twice, so that the time of all ends first and is said in one way
        listener = Remote(member.entry.url, token, 2 * patience_s, trust)
        lines = action(listener)
    except (Unanswered, ValueError) as error:
        return Answer(member, [], str(error))
    except Exception as error:               # an answer of another shape
        return Answer(member, [], f"{member.entry.url}: answers in another form "
                      f"({type(error).__name__})")
    silent = ", ".join(dict.fromkeys(listener.silent))
    return Answer(member, lines, f"{silent} does not answer" if silent else "")


# Answers

def show_answers(answers: Sequence[Answer], as_json: bool) -> None:
    """Each line with its program's name, as pdsh does."""
    for got in answers:
        name = got.member.entry.name
        for line in got.lines:
            if as_json and line.startswith("{"):
                print(json.dumps({"proxy": name, **json.loads(line)}))
            else:
                print(f"{name}: {UNSAFE.sub('?', line)}")


def show_fleet(answers: Sequence[Answer], as_json: bool) -> None:
    if as_json:
        for got in answers:
            print(json.dumps(as_dict(got)))
        return
    rows = [COLUMNS, *(row_of(got) for got in answers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(visible("  ".join(cell.ljust(width) for cell, width in zip(
            row, widths, strict=True)).rstrip(), ""))
    revisions = {got.member.entry.revision for got in answers}
    if len(revisions) > 1:
        print(f"{len(revisions)} revisions are in force")


def row_of(got: Answer) -> tuple[str, ...]:
    entry = got.member.entry
    return (entry.name, state_of(got), entry.version, entry.revision,
            f"{got.member.renewed:.0f} s", str(entry.connections),
            f"{entry.requests:.1f}", f"{100 * entry.cpu:.0f} %")


def state_of(got: Answer) -> str:
    """As it says now; if it does not answer, the reason is on standard error."""
    return got.lines[0][:20] if got.lines else "no answer"


def as_dict(got: Answer) -> dict[str, Any]:
    return {**msgspec.to_builtins(got.member.entry), "renewed": got.member.renewed,
            "state": got.lines[0] if got.lines else None,
            "failure": got.failure or None}
