"""HTTP Archives of many flows: whole, as they are read, or a page at a time."""

import json
from collections.abc import Iterable, Iterator

from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats.har import LeftOut, has_entry, make_archive, try_entry
from cutthrough.storage.store import Reader


def write_archive(reader: Reader, numbers: Iterable[tuple[int, int]]
                  ) -> Iterator[bytes]:
    """In this order. `numbers`: of the flows, each behind another value."""
    before, _, after = json.dumps(make_archive([])).rpartition("[]")    # of entries
    yield f"{before}[".encode()
    mark, left = "", list[LeftOut]()
    for _, number in numbers:
        for row in reader.flows(number=number):
            flow = Flow(row)
            if has_entry(flow) and (entry := try_entry(flow, left)):
                yield (mark + json.dumps(entry, ensure_ascii=False)).encode(
                    errors="replace")
                mark = ",\n"
    more = f', "_leftOut": {json.dumps(left)}' if left else ""
    yield f"]{more}{after}\n".encode()


def make_page(flows: Iterable[Flow], going_on: int | None) -> bytes:
    """In the order of their numbers: `_flow` of an entry is its flow's number, `_next`
    of the log the one to go on from; null: there are no more."""
    archive, left = make_archive([]), list[LeftOut]()
    for flow in filter(has_entry, flows):
        if entry := try_entry(flow, left):
            archive["log"]["entries"].append(entry | {"_flow": flow.id})
    archive["log"]["_next"] = going_on
    if left:
        archive["log"]["_leftOut"] = left
    return json.dumps(archive, ensure_ascii=False).encode(errors="replace")
