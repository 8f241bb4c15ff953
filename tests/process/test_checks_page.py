"""The page of parents' checks: rows, claims and results over processes."""

import os

from cutthrough.process.checks_page import (
    MOST_ROWS,
    STALE_MS,
    ChecksPage,
    make_page,
)


def key(n: int) -> bytes:
    return n.to_bytes(16, "big")


def test_a_check_has_one_row_in_every_process():
    fd = make_page()
    one, two = ChecksPage(os.dup(fd)), ChecksPage(fd)
    assert [one.find(key(n), 0) for n in (7, 8, 7)] == [0, 1, 0]
    assert [two.find(key(n), 0) for n in (8, 9, 7)] == [1, 2, 0]
    for page in (one, two, two):
        page.close()


def test_one_of_two_takes_a_check_until_its_claim_or_its_interval_is_over():
    page = ChecksPage()
    row = page.find(key(1), 1000)
    assert page.claim(row, 1000, 1500) and not page.claim(row, 1499, 9999)
    assert page.claim(row, 1500, 2000), "the one that had it has died"
    page.report(row, key(1), 1600, 2600, 77, True)
    assert not page.claim(row, 2599, 9999)
    assert page.read(row)[1:] == (2600, 1600, 77, 1, 0)
    assert page.claim(row, 2600, 3000)
    page.release(row, key(1), 2700)
    assert page.claim(row, 2700, 9999) and page.read(row).at_ms == 1600


def test_a_row_that_nobody_uses_is_given_to_another_and_no_result_comes_to_it():
    page = ChecksPage()
    rows = [page.find(key(n + 1), 0) for n in range(MOST_ROWS)]
    assert rows == [*range(MOST_ROWS)]
    assert page.find(key(5000), STALE_MS) == -1
    assert page.find(key(5000), STALE_MS + 1) == 0
    page.report(0, key(1), 5, 6, 7, True)
    assert page.read(0).at_ms == 0
