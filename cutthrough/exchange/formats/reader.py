"""A file of exchanges, of which program its content says: HTTP Archive or mitmproxy."""

from collections.abc import Iterator

from cutthrough.exchange.formats.dump_reader import read_dump
from cutthrough.exchange.formats.har_reader import MOST_FILE, read_archive
from cutthrough.exchange.formats.imported import Exchange, NotImported
from cutthrough.exchange.formats.packed import unpacked
from cutthrough.exchange.formats.tnetstring import Readable, begins_with_item
from cutthrough.exchange.redaction.redactor import Redactor


def read(file: Readable, redactor: Redactor) -> Iterator[Exchange | NotImported]:
    """Raises NotImported if it is of neither kind."""
    file, front = unpacked(file)
    if front[:1] in (b"{", b"\xef", b"\xff", b"\xfe"):     # a mark may come first
        yield from read_archive(read_whole(file))
    elif begins_with_item(front):
        yield from read_dump(file, redactor)
    else:
        raise NotImported("is neither an HTTP Archive nor a dump of mitmproxy")


def read_whole(file: Readable) -> bytes:
    """Raises NotImported."""
    data = file.read(MOST_FILE + 1)
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    return data
