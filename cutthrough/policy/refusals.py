"""Texts of the operator's own for refusals: a rule's message, and pages by outcome.

A page stands for the content of the reply that `wire.reply` has made: status, challenge
and time to wait stay. No part of a request gets into it (R13): a page has places for
status, outcome, text and the request's id alone.
"""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from string import Template

import msgspec

from cutthrough.config.administration import REALM
from cutthrough.outcome import TABLE

# Content types by the end of a file's name
TYPES = {"html": "text/html; charset=utf-8", "txt": "text/plain; charset=utf-8",
         "json": "application/json"}
# Outcomes for which a rule's message stands: the rule has refused the request
OF_RULES = frozenset((
    "destination_denied", "path_denied", "protocol_denied", "sni_denied", "ja4_denied",
    "tls_refused"))
DEFAULT = "default"
# As in the replies of wire.reply
_REALM = f'realm="{REALM}"'.encode()
_LENGTH = re.compile(rb"(?<=\r\nContent-Length: )[0-9]+")
_TYPE = re.compile(rb"(?<=\r\nContent-Type: )[^\r]*")
_MEANINGS = {row.label: row.meaning for row in TABLE}


class Page(msgspec.Struct, frozen=True):
    """A file of error_pages: `kind` is the end of its name, a key of TYPES."""

    kind: str
    text: str


class Refusals:
    """`pages`: by outcome, status or DEFAULT; `messages`: of rules, by their number;
    `realm`: of the challenge of a 407."""

    def __init__(self, pages: Mapping[str, Page], messages: Mapping[int, str],
                 realm: str = REALM) -> None:
        self._pages, self._messages = pages, messages
        self._realm = f'realm="{realm}"'.encode()

    def reply(self, label: bytes, reply: bytes, rule: int, is_head: bool, number: str
              ) -> bytes:
        """The reply with the operator's content. `number`: the request's id."""
        name, status = label.decode(), reply[9:12].decode()
        if status == "407":
            reply = reply.replace(_REALM, self._realm, 1)
        message = self._messages.get(rule, "") if name in OF_RULES else ""
        page = (self._pages.get(name) or self._pages.get(status)
                or self._pages.get(DEFAULT))
        if page is None and not message:
            return reply
        text = message or _MEANINGS[name]
        if page is None:
            return with_content(reply, f"{status} {name}: {text}\n", "txt", is_head)
        content = fill(page, status=status, reason=name, text=text, request=number,
                       phrase=HTTPStatus(int(status)).phrase)
        return with_content(reply, content, page.kind, is_head, number)


def fill(page: Page, **values: str) -> str:
    """The page with its $places filled, in the form of its content."""
    return Template(page.text).safe_substitute({
        name: escape(value, page.kind) for name, value in values.items()})


def escape(text: str, kind: str) -> str:
    if kind == "html":
        import html  # 0.8 ms, which few workers need

        return html.escape(text)
    return json.dumps(text)[1:-1] if kind == "json" else text


def with_content(reply: bytes, content: str, kind: str, is_head: bool,
                 number: str = "") -> bytes:
    """The reply with this content; `number`: a request's id that is in it already."""
    data = content.encode()
    head = _LENGTH.sub(str(len(data)).encode(), reply.partition(b"\r\n\r\n")[0])
    head = _TYPE.sub(TYPES[kind].encode(), head)
    if number:
        head += f"\r\nX-Request-Id: {number}".encode()
    return head + b"\r\n\r\n" + (b"" if is_head else data)
