"""The benchmark of the writer of captured exchanges."""

from bench.micro.capture import Load, payloads, run_load
from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.redaction.redactor import Options, Redactor
from cutthrough.tape.assembly import DOWN, END, HEADS, Assembly
from tests.bench.servers import needs_compiler


def test_its_records_are_read_as_a_workers() -> None:
    heads, body, end = payloads(1024)
    (made,) = Assembly(Redactor(Options())).rows(
        [(HEADS, 0, 1, heads), (DOWN, 0, 1, body), (END, 0, 1, end)])
    row = dict(zip(COLUMNS, made, strict=True))
    assert row["url"] == ("http://static.example.com/assets/app/9f1c/main.js"
                          "?v=20260401")
    assert (row["status"], row["reason"], row["user"]) == (200, "ok", "ann")
    assert row["response_body"] == body.decode()
    assert row["response_body_state"] is None


@needs_compiler
def test_the_writer_stores_what_is_put_into_its_ring() -> None:
    figures = run_load(Load("some", total=100))
    assert figures["exchanges"] >= 100
    assert figures["dropped"] == figures["unwritten"] == 0
