"""An operator's view of a held message; edits with stand-ins for secrets (R79)."""

import asyncio
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from cutthrough.exchange.redaction.redactor import Options, Redactor
from cutthrough.filters.breakpoints import Held
from cutthrough.filters.flow import Facts, Flow, Headers, Request

REDACTOR = Redactor(Options(
    fields=("x-own",), query=("token",), json=("$..password",)))
FIELDS = (("Host", "h"), ("Authorization", "Bearer s3cret"), ("X-Own", "s3cret1"),
          ("X-Own", "s3cret2"), ("Referer", "http://u:s3cret@h/?token=s3cret"),
          ("Content-Type", "application/json"))


class Edit(msgspec.Struct):
    action: Any = "edit"
    method: str | None = None
    path: str | None = None
    status: int | None = None
    fields: Any = None
    body: bytes | None = None
    hold_body: bool = False


def held(body: bytes | None = None) -> Held:
    request = Request("GET", "h", 80, "/?token=s3cret&b=1", Headers(FIELDS))
    flow = Flow(request, Facts(user="ann", client="127.0.0.1", id="0-1", rule="seen"))
    return Held(flow, "request", True, body, 0.0, REDACTOR)


async def test_an_operator_sees_what_captures_would_have() -> None:
    shown = held(b'{"password": "s3cret"}').about(1, 1.0, whole=True)
    content = b64decode(shown.pop("content"))
    assert content == b'{"password": "[redacted]"}'
    assert "s3cret" not in str(shown)
    assert "content" not in held(b'{"password": "s3cret"').about(1, 1.0, whole=True)


async def test_an_edit_with_a_stand_in_leaves_the_value_as_it_is() -> None:
    stop = held()
    shown = stop.about(1, 1.0, whole=False)
    stop.decide(Edit(path=shown["path"], fields=[*shown["fields"], ("X-New", "1")]))
    assert stop.message.headers.get_all("X-Own") == ["s3cret1", "s3cret2"]
    assert stop.message.headers.get("Referer") == FIELDS[4][1]
    assert stop.message.path == "/?token=s3cret&b=1"
    assert await asyncio.wait_for(stop.decided, 1) == "edited"


@pytest.mark.parametrize("edit", [
    Edit(path="/?token=[redacted]&b=2"), Edit(fields=[("X-Own", "[redacted]")] * 3),
    Edit(fields=[("X-New", "[redacted]")]),
    Edit(body=b'{"password": "[redacted]", "b": 2}')])
async def test_a_stand_in_that_stands_for_no_value_is_refused(edit: Edit) -> None:
    stop = held(b'{"password": "s3cret"}') if edit.body else held()
    with pytest.raises(ValueError, match=r"\[redacted\] stands for no value"):
        stop.decide(edit)
    assert not stop.decided.done()
