"""Secrets of a request in its captured answer: an origin may repeat them (R59).

`exchange.echoes` finds them, in the head, in the body without its coding, in trailers
and in messages.
"""

from collections.abc import Iterable, Iterator

from cutthrough.exchange.echoes import LEAST, Echoes, Work, secrets_of
from cutthrough.exchange.redaction.redactor import (
    CREDENTIALS,
    Redactor,
    Unreadable,
    hide,
)

# Of a body, or of all messages of an exchange: some 50 ms
MOST_WORK = 1 << 28


def find_echoes(lines: bytes, heard: Iterable[str]) -> Echoes:
    """`lines`: of the request's head, with secrets. `heard`: its secrets elsewhere."""
    return Echoes([*_of_lines(lines), *heard], hide, MOST_WORK)


def _of_lines(lines: bytes) -> Iterator[str]:
    text = lines.decode("latin-1").replace("\r\n", "\n")
    for line in text.replace("\n ", " ").replace("\n\t", " ").split("\n"):
        name, _, value = line.partition(":")
        yield from _of_field(name.strip().lower(), value.strip())


def echoes_of(fields: Iterable[tuple[str, str]], redactor: Redactor) -> Echoes | None:
    """As find_echoes, of the fields of an imported request; None: nothing."""
    echoes = Echoes(
        [secret for name, values in fields if redactor.hides(name)
         for value in values.split("\n")       # browsers join fields of one name
         for secret in _of_field(name.lower(), value.strip())], hide, MOST_WORK)
    return echoes or None


def _of_field(name: str, value: str) -> Iterator[str]:
    if name in CREDENTIALS:
        yield from secrets_of(name, value)
    else:
        yield value


def without(content: bytes | str, echoes: Echoes, *, whole: bool,
            work: Work | None = None) -> bytes | str:
    """A body or a message without these. A secret that its end cuts goes, too. `work`:
    of all messages. Raises Unreadable."""
    work = work or echoes.work()
    data = content.encode() if isinstance(content, str) else content
    result = echoes.cut_within(data, work)
    if result is None:
        raise Unreadable
    if not whole and (begun := echoes.begun(result, work)) >= LEAST:
        result = result[:-begun]
    if isinstance(content, str):
        if work.left < 0:
            raise Unreadable
        return content if result is data else result.decode(errors="replace")
    if echoes.has_wide(result, work) or work.left < 0:
        raise Unreadable
    return result
