"""Budgets of code that catches the end of its budget."""

import asyncio

import pytest

from cutthrough import contained
from cutthrough.testing import Answer, play

JSON = Answer(200, {"Content-Type": "application/json"}, b'{"price": 7}')


class GoesOn:
    """A loop of tries with a bare `except` catches the end of the budget, too."""

    async def try_for_ever(self):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass


class OnRequestHead(GoesOn):
    async def on_request_head(self, flow):
        await self.try_for_ever()


class OnRequestBody(GoesOn):
    async def on_request_body(self, flow, body):
        await self.try_for_ever()


class OnResponseHead(GoesOn):
    async def on_response_head(self, flow):
        await self.try_for_ever()


class OnResponseBody(GoesOn):
    async def on_response_body(self, flow, body):
        await self.try_for_ever()


class OnResponsePieces(GoesOn):
    async def on_response_body(self, flow, pieces):
        async for piece in pieces:
            await self.try_for_ever()
            yield piece


@pytest.mark.parametrize("kind", [
    OnRequestHead, OnRequestBody, OnResponseHead, OnResponseBody, OnResponsePieces])
def test_a_budget_ends_code_that_goes_on_although_it_is_cancelled(monkeypatch, kind):
    """The request waited until a deadline blamed its client or its origin."""
    monkeypatch.setattr(contained, "LEAVE_S", 0)
    more = {"budget": 0.01, "method": "POST", "body": b"body", "answer": JSON}
    assert play(kind(), **more).outcome == "filter_timeout"
    if kind is not OnResponsePieces:
        played = play(kind(), **more, on_fault="pass")
        assert played.outcome == "ok" and played.response.body == JSON.body
