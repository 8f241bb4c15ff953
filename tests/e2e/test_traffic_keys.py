"""The page "Traffic" in a real browser: its keys, its rows on a phone, what an empty
list says, and JSON compared by path."""

import pytest

from tests.capture.flows import row
from tests.support.admin import TOKEN, administered
from tests.support.browser import needs_chromium
from tests.support.traffic import ENTER, ESCAPE, PHONE
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]

ACTIVE = "document.activeElement.id"


def press(page, letter):
    page.browser.key(letter, ord(letter.upper()), letter)


def test_letters_go_through_the_list_and_to_the_filter(page):
    page.fill(*(row(n, url=f"http://a.test/{n}") for n in range(1, 4)))
    page.enter()
    page.wait_rows(3)
    assert page.browser.run(ACTIVE) == "list", "after the token"
    press(page, "j")
    page.wait_note("#detail-url", "http://a.test/3")
    press(page, "j")
    page.wait_note("#detail-url", "http://a.test/2")
    press(page, "k")
    page.wait_note("#detail-url", "http://a.test/3")
    page.browser.key(*ESCAPE)
    assert page.browser.run("$('detail').hidden")
    press(page, "/")
    assert page.browser.run(ACTIVE) == "filter"
    for letter in "jkre":                   # in a field they are letters
        press(page, letter)
    assert page.browser.run("[$('filter').value, $('detail').hidden]") == ["jkre", True]
    page.browser.key(*ESCAPE)               # the hints, then the field
    page.browser.key(*ESCAPE)
    assert page.browser.run(ACTIVE) == "list"
    assert page.browser.faults == []


def test_r_replays_and_e_edits(page, make_origin):
    origin = make_origin()
    page.fill(row(1, url=origin.url("/again"), host="127.0.0.1", request_head=(
        "GET /again HTTP/1.1\r\nHost: a.test\r\nX-One: 1\r\n\r\n")))
    page.enter()
    page.wait_rows(1)
    press(page, "j")
    page.wait_note("#detail-url", "/again")
    press(page, "e")
    wait_until(lambda: page.browser.run("$('send-dialog').open"), "the request")
    assert page.browser.run(ACTIVE) == "send-fields"
    assert page.browser.run("$('send-fields').value").endswith("X-One: 1")
    page.browser.key(*ESCAPE)
    assert not page.browser.run("$('send-dialog').open || $('detail').hidden")
    press(page, "r")
    wait_until(lambda: page.browser.run("$('send-dialog').open"), "the request")
    assert page.browser.run(ACTIVE) == "send-go"
    page.browser.key(*ENTER)
    page.wait_note("#send-note", "407")
    assert origin.requests == [], "r alone sends nothing, and no user is given"


def test_letters_can_be_turned_off(page):
    """(WCAG 2.1.4)"""
    page.fill(row(1))
    page.enter()
    page.wait_rows(1)
    press(page, "?")
    assert page.browser.run("$('keys-dialog').open")
    page.browser.click("#keys-on")
    page.browser.click("[data-closes=keys-dialog]")
    page.browser.run("$('list').focus()")
    press(page, "j")
    page.browser.send("Page.reload")
    wait_until(lambda: page.browser.run("typeof rights !== 'undefined'")
               and page.rows(), "the list")
    page.browser.run("$('list').focus()")
    press(page, "j")
    assert page.browser.run("[chosen, $('keys-on').checked]") == [None, False]
    page.browser.click("#keys")
    page.browser.click("#keys-on")
    page.browser.click("[data-closes=keys-dialog]")
    page.browser.run("$('list').focus()")
    press(page, "j")
    page.wait_note("#detail-url", "#1 ")


def test_on_a_phone_a_row_has_two_lines_and_the_details_the_screen(page):
    page.browser.look(*PHONE, "light")
    page.fill(*(row(n, url=f"https://a.test/{'path/' * 9}{n}", reason=(
        "response_truncated" if n == 60 else "ok")) for n in range(1, 61)))
    page.enter()
    wait_until(lambda: page.text("#count") == "60 flows", "all")
    number = page.browser.run("flowOf(seqAt(0)).id")
    tops = page.browser.run(
        f"Object.fromEntries([...$('flow-{number}').children].filter(one =>"
        " one.offsetParent).map(one => [one.className.split(' ')[0],"
        " Math.round(one.getBoundingClientRect().top)]))")
    first, second = sorted({*tops.values()})
    assert {name for name, top in tops.items() if top == first} == {
        "status", "method", "url"}
    assert {name for name, top in tops.items() if top == second} == {
        "time", "reason", "bytes", "ms"}
    page.open(0)
    assert page.browser.run(
        "(box => [box.left, box.top, box.width, box.height])"
        "($('detail').getBoundingClientRect())") == [0, 0, *PHONE]
    page.browser.click("#close")
    page.browser.run("$('list').scrollTop = 46 * 20")
    page.browser.look(1280, 900, "light")
    wait_until(lambda: page.browser.run("$('list').scrollTop") <= 24 * 60, "lines")
    wait_until(lambda: not page.browser.run("$('list').classList.contains('narrow')"),
               "rows of one line")
    assert page.browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.browser.faults == []


# An empty list


def test_an_empty_list_says_what_to_do(page):
    assert "cutthrough inspect" in page.text("#nothing")
    page.enter()
    page.wait_note("#nothing", "Nothing has passed yet")
    page.wait_note("#nothing", f"http://USER@127.0.0.1:{page.proxy.port} http://example")
    page.fill(row(1), row(2, method="CONNECT", url="a.test:443", intercepted=1))
    page.wait_rows(1)
    assert page.browser.run("$('nothing').hidden")
    page.apply("~d nothing")
    page.wait_note("#nothing", "~d nothing lets none of them pass")
    page.browser.click("#nothing button")
    page.wait_rows(1)
    page.apply("~m CONNECT")
    page.wait_note("#nothing", "CONNECTs alone")
    page.browser.click("#connects")
    page.wait_rows(1)
    assert page.browser.faults == []


@pytest.mark.parametrize(("token", "text"), [
    (TOKEN, 'capture = "full"'), ("", "--admin-token-file")])
def test_a_page_that_can_show_nothing_says_why(
        directory, opened, browse, loop_name, token, text):
    if loop_name != "uvloop":
        pytest.skip("the page knows no event loop")
    _, operator = administered(opened, directory("proxy"), loop_name, token=token)
    browser = browse()
    browser.open(f"http://127.0.0.1:{operator.where}/traffic")
    if token:
        browser.type("#token", TOKEN)
        browser.key(*ENTER)
    wait_until(lambda: text in browser.text("#nothing"),
               lambda: browser.text("#nothing"))


# Two bodies


def test_json_is_compared_by_path(page):
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    page.fill(
        row(1, response_head=head, response_body=(
            '{"a": 1, "list": [1, {"x y": 2}], "same": {"b": null}, "old": true}')),
        row(2, response_head=head, response_body=(
            '{"a": "1", "list": [1, {"x y": 3}, 4], "same": {"b": null},'
            ' "constructor": []}')))
    page.enter()
    page.wait_rows(2)
    page.open(1)
    page.browser.click("#compare")
    page.open(0)
    page.browser.click("#compare")
    wait_until(lambda: page.browser.run("$('diff-dialog').open"), "the diff")
    assert page.browser.run(
        "[...document.querySelectorAll('#diff tr')].map(tr =>"
        " [...tr.cells].map(cell => cell.textContent))") == [
        ["$.a", "1 (number)", '"1" (string)'],
        ['$.list[1]["x y"]', "2", "3"], ["$.list[2]", "absent", "4"],
        ["$.old", "true", "absent"], ["$.constructor", "absent", "[]"]]
    assert page.browser.run("$('diff').querySelector('h2').textContent") == (
        "response body, by path")
    assert page.browser.faults == []
