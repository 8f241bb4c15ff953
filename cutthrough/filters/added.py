"""Secrets added by filters, such as a key that the client may not know (R82).

    the request as it came ── compare ──> the additions ──> stand-ins, for log, capture
                                              └─ Echoes ──> masks in the answer

A value is added if the client has not sent it: of a field, of a key of the query, a
part of the path that looks like a token, a word of a body that does. The origin may
repeat it, so it is masked in the head of the answer, and in its body if that is text. A
mask is as long as the secret: neither framing nor validators change.
"""

import re
from collections.abc import AsyncIterator, Iterable

from cutthrough.codings import CodingError, make_decoders
from cutthrough.exchange.content import is_text
from cutthrough.exchange.echoes import LEAST_COOKIE, Echoes, secrets_of
from cutthrough.filters.flow import FRAMING, Flow, Headers, Request, Response
from cutthrough.filters.stage import Stage, streams

STAND_IN = "[redacted]"
# Octets of a body that waits until it is whole; a longer one is masked as it comes
MOST_WHOLE = 1 << 16
MOST_BODY = 1 << 28                          # other filters of it have bounds
# Of a request
MOST_SECRETS = 64
BUDGET_S = 5.0

# The proxy changes these itself, for filters of bodies
_OURS = {*FRAMING, "accept-encoding", "via", "host", "content-encoding", "expect"}
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{LEAST_COOKIE},}}")

Parts = set[tuple[str, str]]


def parts_of(headers: Headers, path: str) -> Parts:
    """Fields, pairs of the query and parts of the path, each with its kind."""
    plain, _, query = path.partition("?")
    return {*((name.lower(), value) for name, value in headers),
            *(("?", pair) for pair in query.split("&")),
            *(("/", part) for part in plain.split("/"))}


def is_token(text: str) -> bool:
    """No word of a language, but made by a program."""
    return len(text) >= LEAST_COOKIE and any(map(str.isdigit, text))


class Added:
    """The values that filters have added to one exchange."""

    def __init__(self) -> None:
        self.secrets: dict[str, None] = {}
        self._known: Parts = set()
        self.echoes: Echoes | None = None    # made when the request has gone

    def know(self, parts: Parts) -> None:
        """The client's own, or added by a filter with `shown`."""
        self._known |= parts

    def shown(self, request: Request) -> Request | None:
        """The request with stand-ins for the additions; None: without any. Takes note
        of the secrets."""
        known, fields, begun = self._known, list[tuple[str, str]](), len(self.secrets)
        changed = False
        for name, value in request.headers:
            lower = name.lower()
            if value and lower not in _OURS and (lower, value) not in known:
                self._hide(secrets_of(lower, value))
                value, changed = STAND_IN, True
            fields.append((name, value))
        path = self._shown_path(request.path)
        if not changed and path == request.path and begun == len(self.secrets):
            return None
        masked = request.copy()
        masked.path = path
        masked.replace_headers(Headers.as_they_came(fields))
        return masked

    def _shown_path(self, path: str) -> str:
        known = self._known
        plain, mark, query = path.partition("?")
        parts = plain.split("/")
        for at, part in enumerate(parts):
            if is_token(part) and ("/", part) not in known:
                self._hide([part])
                parts[at] = STAND_IN
        pairs = query.split("&")
        for at, pair in enumerate(pairs):
            if pair and ("?", pair) not in known:
                key, equals, value = pair.partition("=")
                self._hide([value or key])
                pairs[at] = f"{key}={STAND_IN}" if equals else STAND_IN
        return "/".join(parts) + mark + "&".join(pairs)

    def look_at_body(self, before: bytes, after: bytes) -> None:
        """Words of the body that look like tokens, and were not in it before."""
        if len(after) > MOST_WHOLE:
            return
        text, old = after.decode("latin-1"), before.decode("latin-1")
        self._hide(match[0] for match in _TOKEN.finditer(text)
                   if is_token(match[0]) and match[0] not in old)

    def _hide(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            if len(self.secrets) < MOST_SECRETS:
                self.secrets[secret] = None

    def find_echoes(self) -> Echoes:
        """From now on of all secrets that are known."""
        self.echoes = Echoes(self.secrets, None)
        return self.echoes

    def stage(self) -> Stage:
        """A filter behind the others. It masks the fields of the answer; if it fails,
        there is none."""
        return Stage("echoes", BUDGET_S, "refuse", MOST_BODY,
                     on_response_head=self._on_response_head, shown=True)

    def stage_of_body(self, response: Response, others: list[Stage]) -> Stage | None:
        """The same for the body; None: it is no text, or cannot be read. `others`: the
        filters of this body before it. If all of these wait for it, this one does."""
        headers = response.headers
        if not is_text(headers.get("Content-Type") or "text/"):
            return None
        try:
            make_decoders(",".join(headers.get_all("Content-Encoding")))
        except CodingError:
            return None
        length = headers.get("Content-Length") or ""
        is_whole = not any(streams(stage.on_response_body) for stage in others
                           if stage.on_response_body) if others else (
            length.isdigit() and int(length) <= MOST_WHOLE
            and not headers.get("Content-Encoding"))
        on_body = self._on_whole_body if is_whole else self._on_body
        return Stage("echoes", BUDGET_S, "refuse", MOST_BODY, on_response_body=on_body,
                     shown=True)

    async def _on_response_head(self, flow: Flow) -> None:
        response, echoes = flow.response, self.echoes
        if response is None or not echoes:
            return
        fields = [(name, echoes.text(value)) for name, value in response.headers]
        if fields != list(response.headers):
            response.replace_headers(Headers.as_they_came(fields))
        reason = echoes.text(response.reason)
        if reason != response.reason:
            response.reason = reason

    async def _on_whole_body(self, flow: Flow, body: bytes) -> bytes:
        assert self.echoes is not None
        return self.echoes.cut(body)

    async def _on_body(self, flow: Flow, pieces: AsyncIterator[bytes]
                       ) -> AsyncIterator[bytes]:
        """The possible begin of a secret waits for the next piece."""
        echoes, held = self.echoes, b""
        assert echoes is not None
        async for piece in pieces:
            data = echoes.cut(held + piece)
            begun = echoes.begun(data)
            held = data[len(data) - begun:]
            if len(data) > begun:
                yield data[:len(data) - begun]
        if held:
            yield held
