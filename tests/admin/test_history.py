"""The last hour, which the live page shows: rows of counters, and of gauges."""

from types import SimpleNamespace

from cutthrough.admin.live_page import EVERY_S, FIELDS, MOST_ROWS, History


def reading(**counts):
    """With one worker, which has ended."""
    sums = {"bytes_up": 0, "bytes_down": 0, "requests": 0} | counts
    ended = {"destination_denied": sums.pop("denied", 0), "ok": 100}
    page = {"state:TUNNEL": sums.pop("tunnels", 0), "state:CLOSED": 7, "peak": 9}
    return SimpleNamespace(
        total=lambda name: sums[name], totals=lambda prefix: ended,
        workers={0: 0}, living={1: page})


def test_a_row_has_what_has_grown_since_the_one_before():
    history = History()
    history.add(reading(bytes_up=5, denied=2), 1000.0)
    assert history.rows(0) == []
    history.add(reading(bytes_up=9, bytes_down=3, requests=4, denied=3, tunnels=2),
                1010.2)
    (row,) = history.rows(0)
    assert dict(zip(FIELDS, row, strict=True)) == {
        "at": 1010, "up": 4, "down": 3, "requests": 4, "failed": 1, "cpu_s": 0,
        "connections": 2, "memory": 0}
    assert history.rows(1010) == []


def test_it_has_an_hour_and_no_more():
    history = History()
    for n in range(MOST_ROWS + 5):
        history.add(reading(requests=n), float(n * EVERY_S))
    rows = history.rows(0)
    assert len(rows) == MOST_ROWS and rows[-1][0] - rows[0][0] == 3600 - EVERY_S
    assert {row[3] for row in rows} == {1}


def test_a_sum_that_falls_is_no_negative_row():
    """Pages of a program that was replaced are gone."""
    history = History()
    history.add(reading(requests=9), 0.0)
    history.add(reading(requests=2), 10.0)
    assert history.rows(0)[0][3] == 0
