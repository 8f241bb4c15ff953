"""`cutthrough flows replay` and `send`: a captured request once more, or a new one,
through a proxy.

The proxy is the one that `--proxy` names, with the user that `--user` names: it judges
the request as any other. If `--admin` is given without `--proxy`, the admin listener
sends it through a listener of its own program. Without both, what `cutthrough inspect`
has kept is sent once more by a proxy of that kind, which lives as long as the request.
"""

import argparse
import base64
import contextlib
import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cutthrough.capture.pasted import MOST_TEXT, read_curl
from cutthrough.capture.query import QueryError, Request
from cutthrough.capture.send import OURS, check_whole, replay_of, send
from cutthrough.capture.views import show_body
from cutthrough.config.config import ConfigError
from cutthrough.config.settings import read_secret_file
from cutthrough.config.values import split_address
from cutthrough.exchange.bodies import Transferred, make_body
from cutthrough.exchange.flow import Flow, find
from cutthrough.exchange.formats.imported import make_redactor
from cutthrough.exchange.visible import visible
from cutthrough.tools.authorities import find_authorities
from cutthrough.tools.console import Listener
from cutthrough.tools.flow_source import ByListener

# Fields of a response that say nothing about its content
VARYING = OURS | {"date"}


def replay_flow(flow: Flow, args: argparse.Namespace,
                listener: Listener | None = None) -> int:
    """Sends the request and prints the response; returns the exit status: 1 if there
    is none. Raises ConfigError, and Unanswered by the listener."""
    if flow.is_tunnel:
        print(f"cutthrough: flow {flow.id} is a tunnel: there is no request to send",
              file=sys.stderr)
        return 1
    return _send(*edit(*replay_of(flow), args), args, flow, listener)


def send_new(args: argparse.Namespace, listener: Listener | None = None) -> int:
    """Sends the request of the command line, as replay_flow does."""
    if (args.url is None) == (args.curl is None):
        raise ConfigError("command line", "send", "takes a URL, or --curl FILE")
    if args.curl is None:
        method = "GET" if args.data_file is None else "POST"
        request = Request(url=args.url, method=method)
    else:
        try:
            request = read_curl(read_text(args.curl))
        except QueryError as error:
            raise ConfigError("command line", "--curl", str(error)) from None
    return _send(*edit(request, [], args), args, None, listener)


def read_text(path: str) -> str:
    """`-` is standard input. Raises ConfigError."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8", closefd=path != "-"
                  ) as file:
            return file.read(MOST_TEXT + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("command line", "--curl", str(error)) from None


def _send(request: Request, left: list[str], args: argparse.Namespace,
          flow: Flow | None, listener: Listener | None) -> int:
    if left:
        print(f"cutthrough: not kept, and left out: {', '.join(left)}",
              file=sys.stderr)
    try:
        check_whole(left)
        with _way(args, listener, flow is not None) as carry_out:
            response = carry_out(request)
    except QueryError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    if flow is not None and args.diff:
        lines = list(differences(flow, response))
        print("\n".join(lines) or "no difference")
        return int(bool(lines))
    show(response, args.json)
    return 0


@contextlib.contextmanager
def _way(args: argparse.Namespace, listener: Listener | None, is_kept: bool
         ) -> Iterator[Callable[[Request], dict[str, Any]]]:
    """The sender of a request. Raises ConfigError, and QueryError."""
    if args.proxy is not None:
        try:
            proxy = split_address(args.proxy)
        except ValueError as error:
            raise ConfigError("command line", "--proxy", str(error)) from None
        authorities = find_authorities(args.cacert, os.environ)
        yield lambda request: send(request, proxy, authorities)
        return
    if args.cacert is not None:
        raise ConfigError("command line", "--cacert", "is for --proxy: any other proxy "
                          "has authorities of its own")
    if listener is not None:
        yield ByListener(listener).send
        return
    if not is_kept:
        raise ConfigError("command line", "--proxy", "is required without --admin")
    from cutthrough.tools.inspection import own_proxy

    with own_proxy(args) as sender:
        yield lambda request: send(msgspec.structs.replace(
            request, user=sender.user, password=sender.password),
            sender.address, sender.authority)


def edit(request: Request, left: list[str], args: argparse.Namespace
         ) -> tuple[Request, list[str]]:
    """The request with the changes of the command line, and its missing parts."""
    fields = list(request.fields)
    for text in args.header:
        name, colon, value = text.partition(":")
        if not colon:
            raise ConfigError("command line", "--header", f"{text!r} has no colon")
        fields = [field for field in fields if field[0].lower() != name.lower()]
        left = [part for part in left if part.lower() != name.lower()]
        if value.strip():
            fields.append((name, value.strip()))
    body, password = request.body, ""
    if args.data_file is not None:
        try:
            with open(args.data_file, "rb") as file:
                body = file.read()
        except OSError as error:
            raise ConfigError(
                "command line", "--data-file",
                f"{args.data_file}: {error.strerror or error}") from None
        left = [part for part in left if not part.startswith("body ")]
    if args.url:
        left = [part for part in left if not part.startswith("url ")]
    if args.password_file is not None:
        password = read_secret_file(
            args.password_file, "command line", "--password-file")
    return Request(url=args.url or request.url, method=args.method or request.method,
                   fields=tuple(fields), body=body, user=args.user,
                   password=password), left


def differences(flow: Flow, response: dict[str, Any]) -> Iterator[str]:
    """The lines of a unified diff. The new response is redacted as if captured."""
    head = f"{response['head']}\r\n\r\n"
    data = base64.b64decode(response["body"])
    redactor = make_redactor(keep_credentials=False)
    body = make_body(
        Transferred(data, len(data), cut=response["truncated"]), head, redactor)
    fresh = Flow({"response_head": redactor.head(head), "response_body": body.content})
    for line in difflib.unified_diff(
            lines_of(flow), lines_of(fresh), f"flow {flow.id}", "replay", lineterm="",
            n=2):
        yield "".join(char if char.isprintable() or char == "\t" else "?"
                      for char in line)


def lines_of(flow: Flow) -> list[str]:
    """Status, fields without VARYING, and the body by its type."""
    fields = flow.response_fields
    status = (flow.response_head or "").split("\r\n")[0].split(" ", 1)[-1].strip()
    lines = [status, *(f"{name}: {value}" for name, value in sorted(
        fields, key=lambda field: field[0].lower()) if name.lower() not in VARYING), ""]
    if flow.response_body:
        lines += show_body(flow.response_body, find(fields, "content-type"), "auto",
                           find(fields, "grpc-encoding"))
    return lines


def show(response: dict[str, Any], as_object: bool) -> None:
    if as_object:
        print(json.dumps(response))
        return
    body = base64.b64decode(response["body"])
    if sys.stdout.isatty():                  # characters that could disturb a terminal
        text = (response["head"] + "\n\n").encode("latin-1", "replace") + body
        print(visible(text.decode(errors="replace")))
        return
    sys.stdout.buffer.write(
        response["head"].encode("latin-1", "replace") + b"\r\n\r\n" + body)
    sys.stdout.buffer.flush()
