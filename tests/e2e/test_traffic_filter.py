"""The filter of the page "Traffic" in a real browser: its offers, and its effect."""

import pytest

from cutthrough.capture.filters import _BARE, _COMPARED, _TEXTS
from cutthrough.storage.stores import open_reader
from tests.capture.flows import row
from tests.support.browser import needs_chromium
from tests.support.traffic import DOWN, ENTER, ESCAPE
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]


def test_a_filter_is_completed_and_applied(page):
    page.fill(*(row(n, host=f"h{n % 3}.test", url=f"http://h{n % 3}.test/{n}",
                    status=404 if n == 5 else 200) for n in range(1, 10)))
    page.enter()
    page.wait_rows(9)
    page.browser.click("#filter")
    hints = "[...document.querySelectorAll('#hints b')].map(one => one.textContent)"
    assert page.browser.run(hints)[:3] == ["~d", "~m", "~u"]
    page.browser.key(*DOWN)
    page.browser.key(*ENTER)
    assert page.browser.run("$('filter').value") == "~d "
    assert page.browser.run(hints) == ["h0.test", "h2.test", "h1.test"]
    page.browser.key(*DOWN)
    page.browser.key(*DOWN)
    page.browser.key(*ENTER)
    assert page.browser.run("$('filter').value") == "~d h2.test "
    assert page.browser.run(hints)[:2] == ["&", "|"]
    page.browser.key(*DOWN)
    page.browser.key(*ENTER)
    page.browser.send("Input.insertText", text="!~c")
    page.browser.send("Input.insertText", text=" ")
    assert set(page.browser.run(hints)) == {"200", "404"}
    page.browser.send("Input.insertText", text="404")
    page.browser.key(*ESCAPE)
    page.browser.key(*ENTER)
    page.wait_rows(2)
    assert page.urls() == ["http://h2.test/8", "http://h2.test/2"]
    page.fill(row(20, host="h2.test", url="http://h2.test/20"), row(21))
    page.wait_rows(3)
    assert page.urls()[0] == "http://h2.test/20", "the stream is filtered, too"
    assert page.browser.faults == []


HINTS = "[...document.querySelectorAll('#hints b')].map(one => one.textContent)"
COMPLETED = (
    ("~", ["~d", "~m", "~u", "~c", "~t", "~tq", "~ts", "~h", "~hq", "~hs", "~b",
           "~bq"]),
    ("~t", ["~t", "~tq", "~ts", "~time", "~tag"]), ("~co", ["~comment"]),
    ("~us", ["~user"]), ("~r", ["~rule", "~reason"]), ("~ds", ["~dst"]),
    ("~s", ["~s", "~size", "~src", "~sni"]),
    ("~j", ["~ja4"]), ("~c 4xx & ~re", ["~reason"]),
    # Values of the list; a value of more flows comes first
    ("~src ", ["127.0.0.1", "2001:db8::1"]),
    ("~dst ", ["192.0.2.1:80", "\\[2001:db8::2\\]:443"]), ("~sni IN", ["in.test"]),
    ("~ja4 ", ["t13d_a_b"]), ("~tag ", ["odd"]), ("~comment ", ['"see 2"']),
    ("~user ", ["ann", "bob"]),
    ("~user B", ["bob"]), ("~rule ", ["here", '"not \\(there\\)"']),
    ("~reason ", ["ok", "path_denied"]), ("~dst x ", ["&", "|", "!", "("]),
    ("~ja4 x ", ["&", "|", "!", "("]))


def test_every_operator_is_completed_with_values_of_the_list(page):
    page.fill(row(1, url="http://a.test/1"), row(2, url="http://a.test/2"),
              row(3, url="http://a.test/3", user="bob", rule="not (there)",
                  reason="path_denied", client="2001:db8::1", peer="2001:db8::2",
                  peer_port=443, sni="in.test", ja4="t13d_a_b"))
    reader = open_reader(str(page.database))
    reader.mark(1, "odd", "see 2")
    reader.close()
    page.enter()
    page.wait_rows(3)
    operators = [one[0] for one in page.browser.run("OPERATORS")]
    assert sorted(operators) == sorted(["~c", *_TEXTS, *_COMPARED, *_BARE])
    for typed, offered in COMPLETED:
        page.browser.type("#filter", typed)
        assert page.browser.run(HINTS) == offered, typed
    for typed, steps, found in (("~rule ", 2, "3"), ("~comment ", 1, "1"),
                                ("~reason ", 2, "3"), ("~reason ", 1, "21")):
        page.browser.type("#filter", typed)
        for _ in range(steps):
            page.browser.key(*DOWN)
        for _ in range(2):                   # takes the value, applies the filter
            page.browser.key(*ENTER)
        wait_until(lambda found=found: "".join(
            url[-1] for url in page.urls()) == found, typed)
    page.browser.type("#filter", "~reason ")
    items = "[...document.querySelectorAll('#hints li')].map(one => one.textContent)"
    assert page.browser.run(items) == ["ok2 flows", "path_denied1 flow"], (
        "each is counted once")
    assert page.browser.faults == []


def test_what_an_operator_notes_is_completed(page):
    page.fill(row(1))
    page.enter()
    page.wait_rows(1)
    page.open()
    page.tab("notes")
    page.browser.type("#tag", "new")
    page.browser.click("#save")
    page.wait_note("#save-note", "saved")
    for typed, offered in (("~tag ", ["new"]), ("~comment ", [])):
        page.browser.type("#filter", typed)
        assert page.browser.run(HINTS) == offered


def test_a_filter_that_cannot_be_read_is_explained(page):
    page.fill(row(1))
    page.enter()
    page.apply("~c many")
    page.wait_note("#filter-error", "~c takes a status")
    assert page.browser.run("$('filter').ariaInvalid") == "true"
    page.apply("~c 200")
    page.wait_rows(1)
    assert page.text("#filter-error") == ""
