"""Shares of memory for a request, a part of one and a stranger's head (R31, R32)."""

import asyncio
import contextlib

import pytest

from cutthrough.verify.verifier import Verifier
from tests.support.client import WRONG, build_request
from tests.support.embedded import serve_embedded
from tests.support.origin import Origin
from tests.support.shedding import SMALL_BLOCK, be_partial, held
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_a_request_that_is_whole_is_not_closed_for_its_own_head(
        loop_name, call, bounds):
    """R32: room for a head was made by closing the oldest part of a head. That was this
    request's own part: the request went on with memory that had been freed."""
    def journey(proxy) -> None:
        with Origin() as origin:
            head = build_request("GET", origin.url())
            guests = [call(proxy.port) for _ in range(2)]
            for guest in guests:
                assert guest.get(origin.url()).status == 200
            before = held("requests")
            for n, guest in enumerate(guests):
                guest.send(head[:-2])
                wait_until(lambda want=before + (n + 1) * SMALL_BLOCK:
                           held("requests") == want, "its part")
            bounds(before + 2 * SMALL_BLOCK, "requests")
            guests[0].send(head[-2:])
            assert guests[0].read_response().status == 200
            assert guests[1].read_response().status == 503
            guests[0].send(head)
            assert guests[0].read_response().status == 200
            assert proxy.worker.page.read()["faults"] == 0

    serve_embedded(loop_name, journey, access_log="off")


def test_parts_of_users_are_not_closed_for_the_room_of_strangers(
        loop_name, call, bounds):
    """R31: the bytes that a connection had sent before it authenticated stayed in the
    strangers' share: when the share was used up, all users' parts were closed, and made
    no room."""
    def journey(proxy) -> None:
        with Origin() as origin:
            head = build_request("GET", origin.url())
            guests = [call(proxy.port) for _ in range(3)]
            for guest in guests:
                guest.send(head[:40])
                wait_until(lambda: held("strangers") == SMALL_BLOCK, "its first piece")
                guest.send(head[40:] + head[:40])
                assert guest.read_response().status == 200
                wait_until(lambda: not held("strangers"), "it is a user's now")
            bounds(SMALL_BLOCK, "strangers")
            be_partial(call(proxy.port, "127.0.0.2"))
            wait_until(lambda: held("strangers") == SMALL_BLOCK, "the share is used up")
            long = b"Z: " + b"z" * 1000 + b"\r\n"
            guests[0].send(head[40:-2] + long)
            wait_until(lambda: held("requests") > 3 * SMALL_BLOCK, "a larger block")
            for guest in guests[1:]:
                guest.send(head[40:])
                assert guest.read_response().status == 200
            guests[0].send(b"\r\n")
            assert guests[0].read_response().status == 200

    serve_embedded(loop_name, journey, access_log="off")


def test_heads_of_strangers_leave_users_their_room(
        loop_name, call, bounds, monkeypatch):
    """R31: while a password was verified, the head of its request stood in the share of
    users, and users were refused for want of memory."""
    def journey(proxy) -> None:
        with Origin() as origin:
            user = call(proxy.port)
            assert user.get(origin.url()).status == 200
            # A hash that takes long
            monkeypatch.setattr(Verifier, "verify", lambda *asked: None)
            before = held("requests")
            bounds(before + SMALL_BLOCK, "requests")
            bounds(4 * SMALL_BLOCK, "strangers")
            guess = build_request("GET", origin.url(), auth=WRONG)
            for n in range(4):
                call(proxy.port, "127.0.0.2").send(guess)
                wait_until(lambda n=n: proxy.worker.page.read()["state:AUTH"] == n + 1,
                           "another one")
            assert (held("requests"), held("strangers")) == (before, 4 * SMALL_BLOCK)
            late = call(proxy.port, "127.0.0.2")
            late.send(guess)
            assert late.read_response().status == 503
            assert user.get(origin.url()).status == 200

    serve_embedded(loop_name, journey, access_log="off")


def test_the_head_of_a_stranger_takes_the_room_of_a_part(
        loop_name, call, bounds, monkeypatch):
    """R31: parts of heads are closed for a head that is whole, not the other way."""
    def journey(proxy) -> None:
        with Origin() as origin:
            assert call(proxy.port).get(origin.url()).status == 200
            monkeypatch.setattr(Verifier, "verify", lambda *asked: None)
            bounds(SMALL_BLOCK, "strangers")
            part = call(proxy.port, "127.0.0.2")
            be_partial(part)
            wait_until(lambda: held("strangers") == SMALL_BLOCK, "its part")
            call(proxy.port).send(build_request("GET", origin.url(), auth=WRONG))
            assert part.read_response().status == 503
            wait_until(lambda: proxy.worker.page.read()["state:AUTH"] == 1, "the head")

    serve_embedded(loop_name, journey, access_log="off")


def test_who_waits_for_a_password_holds_no_place_against_users(
        loop_name, call, monkeypatch):
    """R32: callers with wrong passwords held every connection while the passwords were
    verified: no other caller was let in."""
    def journey(proxy) -> None:
        with Origin() as origin:
            with contextlib.closing(call(proxy.port)) as user:
                assert user.get(origin.url()).status == 200
            page = proxy.worker.page
            wait_until(lambda: page.read()["live"] == 0, "the end of it")
            monkeypatch.setattr(Verifier, "verify", lambda *asked: None)
            guesses = [call(proxy.port, f"127.0.0.{n}") for n in (2, 3, 3, 4)]
            for n, one in enumerate(guesses):
                one.send(build_request("GET", origin.url(), auth=WRONG))
                wait_until(lambda n=n: page.read()["state:AUTH"] == n + 1, "it waits")
            user = call(proxy.port)
            assert user.get(origin.url()).status == 200
            assert guesses[1].read_response().status == 503
            assert page.read()["state:AUTH"] == 3
            assert page.read()["shed:connections head"] == 1
            assert user.get(origin.url()).status == 200

    serve_embedded(loop_name, journey, access_log="off", max_connections=4)


def test_who_waited_for_a_password_and_was_wrong_is_idle(loop_name, call, monkeypatch):
    """Its place is no longer the place of a waiting caller."""
    def journey(proxy) -> None:
        with Origin() as origin:
            asked = []
            monkeypatch.setattr(Verifier, "verify", lambda *args: asked.append(
                (asyncio.get_running_loop(), args[-1])))
            page = proxy.worker.page
            guess = call(proxy.port, "127.0.0.2")
            guess.send(build_request("GET", origin.url(), auth=WRONG))
            wait_until(lambda: asked and page.read()["state:AUTH"] == 1, "the question")
            loop, tell = asked[0]
            loop.call_soon_threadsafe(tell, "auth_failed", 0)
            assert guess.read_response().status == 407
            call(proxy.port)
            wait_until(lambda: page.read()["shed:connections stranger"] == 1, "its end")
            assert page.read()["shed:connections head"] == 0

    serve_embedded(loop_name, journey, access_log="off", max_connections=1)
