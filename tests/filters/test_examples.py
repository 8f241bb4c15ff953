"""The filters of docs/examples, each played."""

import json
import time

import pytest

from cutthrough.testing import Answer, play
from docs.examples.filters import AddHeader, BlockPrograms, HidePrices, MapLocal, Slow
from tests.support.proxy import ROOT


def test_a_header_is_added():
    assert play(AddHeader(), groups=("dev", "qa")).request.headers["X-Team"] == "dev,qa"
    assert play(AddHeader()).request.headers["X-Team"] == "none"


@pytest.mark.parametrize(("kind", "outcome"), [
    ("application/x-msdownload", "filter_refused"),
    ("Application/X-Executable; a=b", "filter_refused"),
    ("text/html", "ok"), ("", "ok")])
def test_a_type_is_blocked(kind, outcome):
    played = play(BlockPrograms(), answer=Answer(200, {"Content-Type": kind}, b"MZ"))
    assert played.outcome == outcome
    assert (played.response is None) == (outcome != "ok")


def test_json_is_rewritten():
    answer = Answer(200, {"Content-Type": "application/json"}, b'{"price": 7, "a": 1}')
    played = play(HidePrices(), answer=answer)
    assert json.loads(played.response.body) == {"price": None, "a": 1}
    text = Answer(200, {"Content-Type": "text/plain"}, b'{"price": 7}')
    assert play(HidePrices(), answer=text).response.body == text.body
    broken = answer._replace(body=b"{")
    assert play(HidePrices(), answer=broken).outcome == "filter_failed"


def test_latency_is_injected():
    began = time.monotonic()
    played = play(Slow(), answer=Answer(body=bytes(100)), pieces=10)
    assert played.response.body == bytes(100)
    assert time.monotonic() - began >= 0.1


def test_files_answer(tmp_path):
    (tmp_path / "index.html").write_text("local")
    local = MapLocal()
    local.folder = tmp_path
    played = play(local, url="http://example.com/?x")
    assert (played.outcome, played.response.body) == ("filter_answered", b"local")
    for path in ("/absent", "/../test_examples.py", "/%2e%2e/x"):
        assert play(local, url=f"http://example.com{path}").outcome == "ok"


def test_the_page_s_code_works(tmp_path, monkeypatch):
    """docs/filters.md."""
    page = (ROOT / "docs" / "filters.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    space: dict = {}
    for block in blocks:
        exec(block, space)
    played = play(space["Example"](), answer=Answer(body=b"a colour"))
    assert played.response.body == b"a color"
    assert play(space["Example"](), answer=Answer(418)).outcome == "filter_refused"
