"""Parts of texts to compare: digests, groups of expressions, pairs in order. Documents,
their paths and bounds: exchange.documents.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.documents import (
    canonical,
    compile_path,
    flatten,
    read_json,
    remove,
    select,
    show_path,
    tidy,
)
from cutthrough.exchange.expressions import compile_expression

__all__ = ["KeyMistake", "as_text", "canonical", "captured", "compile_finder",
           "compile_path", "compile_regex", "digest", "flatten", "read_json",
           "remove", "select", "show_path", "tidy"]



def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def compile_regex(text: str) -> Callable[[str], Any]:
    """A search: returns a match or None, and may raise TooMuch. Raises KeyMistake."""
    return compile_expression(text).search


def compile_finder(text: str) -> Callable[[str], Iterator[Any]]:
    """All matches; they may raise TooMuch. Raises KeyMistake."""
    return compile_expression(text).finditer


def captured(body: bytes, pattern: str) -> tuple[str | None, ...] | None:
    """The groups of the first match, or the match if it has no group; None if there
    is no match. Raises KeyMistake and TooMuch."""
    match = compile_regex(pattern)(body.decode(errors="replace"))
    if match is None:
        return None
    return tuple(match.groups()) or (match.group(),)


def as_text(pairs: list[tuple[str, str]]) -> str:
    """Pairs sorted by key; the order of the values of one key stays."""
    return "&".join(f"{quote(key, safe='')}={quote(value, safe='')}"
                    for key, value in sorted(pairs, key=lambda pair: pair[0]))
