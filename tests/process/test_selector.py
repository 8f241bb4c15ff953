"""A selector is validated once, at the border, before a worker hears of it (R31)."""

import msgspec
import pytest

from cutthrough.process.channel import Cut, List, Message
from cutthrough.process.selector import MOST_BYTES, MOST_OLDER, MOST_TEXT, Selector

REFUSED = (
    "older=inf", "older=-inf", "older=nan", "older=1e309", "older=-1",
    f"older={MOST_OLDER * 2}", "bytes=-1", f"bytes={MOST_BYTES + 1}",
    f"bytes={10 ** 40}", "bytes=inf", "bytes=1.5", "user=" + "u" * (MOST_TEXT + 1),
    "host=" + "h" * (MOST_TEXT + 1), "user=\udcff", "host=\ud800", "id=0-1-2", "id=x",
    "id=0-" + "9" * 21, "id=*", "client=127.0.0.256", "client=fe80::1%lo",
    "state=TUNNEL", "kind=tunnels", "all=perhaps",
)
ACCEPTED = (
    "older=0", "older=0.5", f"older={MOST_OLDER}", f"bytes={MOST_BYTES}", "id=12-34567",
    "user=" + "u" * MOST_TEXT, "user=ä", "host=*.example.com", "client=::1",
    "client=127.0.0.1", "state=tunnel", "kind=idle", "all=true",
)


def read(query: str) -> Selector:
    name, _, value = query.partition("=")
    return Selector.from_query({name: value})


@pytest.mark.parametrize("query", REFUSED, ids=lambda query: ascii(query)[:30])
def test_what_no_worker_could_read_is_refused_with_its_reason(query):
    """`older=inf` went on as `null`, which each worker met with a traceback."""
    with pytest.raises(ValueError, match=query.partition("=")[0]):
        read(query)


@pytest.mark.parametrize("query", ACCEPTED, ids=lambda query: ascii(query)[:30])
def test_what_is_accepted_arrives_as_it_was(query):
    for question in (List(1, read(query)), Cut(1, read(query))):
        packet = msgspec.json.encode(question)
        assert msgspec.json.decode(packet, type=Message) == question


def test_an_address_is_compared_in_its_one_spelling():
    assert read("client=0:0:0:0:0:0:0:1").client == "::1"
    assert read("client=::ffff:127.0.0.1").client == "127.0.0.1"
