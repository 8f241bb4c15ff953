"""`cutthrough top`: what its screen says, without a terminal."""

import argparse

import pytest

from cutthrough.tools import top
from cutthrough.tools.console import at_listener
from cutthrough.tools.top import Line, Screen, bars

SAMPLE = {
    "config_generation": 1.0, "tunnels": 1.0, 'worker_up{worker="0"}': 1.0,
    'connections{state="TUNNEL"}': 2.0,
    'requests_total{code="200",method="GET"}': 100.0,
    'bytes_total{direction="up",path="copy"}': 0.0,
    'ended_total{reason="ok"}': 90.0, 'ended_total{reason="address_denied"}': 10.0,
    'ended_total{reason="dns_error"}': 0.0}


def connection(name, user="ann", up=0, down=0, age=1.0):
    return {"id": name, "user": user, "client": "127.0.0.1", "method": "GET",
            "host": "a.test", "port": 80, "state": "TUNNEL", "age": age,
            "bytes_up": up, "bytes_down": down}


@pytest.fixture
def screen():
    made = Screen("127.0.0.1:9090")
    made.look(SAMPLE, [connection("0-1"), connection("0-2", "bob", up=7, age=9.0)],
              10.0)
    made.look({**SAMPLE, 'requests_total{code="200",method="GET"}': 140.0,
               'ended_total{reason="address_denied"}': 14.0},
              [connection("0-1", down=6000), connection("0-2", "bob", up=7, age=11.0)],
              12.0)
    return made


def texts(screen, width=100, height=40):
    return [line.text for line in screen.lines(width, height)]


def test_it_has_rates_reasons_users_and_the_busiest(screen):
    lines = texts(screen)
    text = "\n".join(lines)
    assert lines[0] == "cutthrough top  127.0.0.1:9090"
    assert "20.0 requests/s" in text and "generation 1, 1 worker, 2 connections" in text
    (row,) = [line for line in lines if line.startswith("address_denied")]
    assert row.split()[:3] == ["address_denied", "14", "2.0"]
    assert "dns_error" not in text, "it has not happened"
    users = [line[46:].split() for line in lines
             if line[46:].startswith(("ann", "bob"))]
    assert users == [["ann", "1", "3.0"], ["bob", "1", "0.0"]]
    rows = [line.split()[0] for line in lines if line.startswith("0-")]
    assert rows == ["0-1", "0-2"]


def test_the_rows_are_sorted_by_what_is_chosen(screen):
    for sort, first in (("bytes", "0-1"), ("age", "0-2"), ("user", "0-1")):
        rows = [line.split()[0] for line in texts(screen) if line.startswith("0-")]
        assert rows[0] == first, sort
        screen.sort += 1


@pytest.mark.parametrize(("width", "height"), [(30, 12), (84, 24), (200, 60), (12, 3)])
def test_it_fits_into_every_terminal(screen, width, height):
    lines = screen.lines(width, height, screen.help(1.0))
    assert len(lines) == height
    assert max(len(line.text) for line in lines) <= width
    assert lines[-1] == Line("q quit   space pause   s sort: bytes   + - every 1 s"[
        :width], "dim")


def test_a_stranger_s_text_cannot_write_to_the_terminal(screen):
    screen.look(SAMPLE, [connection("0-1", user="a\x1b[2J\u202e")], 13.0)
    assert not any("\x1b" in line or "\u202e" in line for line in texts(screen))


def test_a_proxy_that_does_not_answer_is_named_above_its_last_figures(screen):
    screen.error = "127.0.0.1:9090: Connection refused"
    lines = screen.lines(100, 40)
    assert lines[1] == Line("the proxy does not answer: 127.0.0.1:9090: Connection "
                            "refused", "bad")
    assert any("requests/s" in line.text for line in lines)


def test_bars_are_relative_to_the_highest():
    assert bars([0.0, 5.0, 10.0], 80) == " ▄█| 10.0 requests/s at most"
    assert bars([], 80).startswith("|") and bars([0.0], 80).startswith(" |")


def interrupted(*_):
    raise KeyboardInterrupt


def test_ctrl_c_ends_the_screen_and_fails_every_other_verb(monkeypatch):
    """`reload`, `drain` and `status` ended with 0, and no answer had come."""
    args = argparse.Namespace(admin="127.0.0.1:9", token_file=None, interval=1, count=0)
    with pytest.raises(KeyboardInterrupt):
        at_listener(args, interrupted)
    monkeypatch.setattr(top, "look", lambda *_: None)
    monkeypatch.setattr(top, "has_screen", lambda: True)
    monkeypatch.setattr(top.curses, "wrapper", interrupted)
    assert top.run(args) == 0
    monkeypatch.setattr(top, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        top.run(args)
