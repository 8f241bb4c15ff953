"""The first rows of a filter, which the page "Traffic" finds by itself: they are those
that the listener's answer has, and the answer has the last word."""

import json

import pytest

from cutthrough.capture.filters import parse_filter
from tests.capture.flows import flow, row
from tests.support.browser import needs_chromium
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]

FIELDS = [{"number": n, "host": host, "url": f"http://{host}/{path}", "method": method,
           "status": status, "user": user, "rule": "here", "reason": reason}
          for n, (host, path, method, status, user, reason) in enumerate([
              ("a.test", "x?b=c", "GET", 200, "ann", "ok"),
              ("A.test", "X/y.json", "POST", 404, "bob", "ok"),
              ("b-a.test", "404", "DELETE", 503, None, "origin_unreachable"),
              ("xa.testing", "", "GET", None, "ann", "dns_timeout"),
              ("[::1]", "a%20b", "PUT", 99, "ann", "ok")], 1)]
FILTERS = (
    "~d a.test", "~d ^a\\.test$", "~m ^get$", "~m E", "~u x", "x", "~c 404", "~c 4xx",
    "~c 0", "~c 5XX", "~user ann", "!~user ann", "~d a & ~m GET", "~d a ~m GET",
    "~d a & !~c 200", "!x", "~reason ok", "~rule here", "~u .test/x", "~d test & x & y",
    "~u a%20b", "~u \\?b=c", "", "~c 99", "~u ^http://a", "~d \\[::1\\]")
#: What the listener reads alone, or refuses
OTHERS = (
    "~d a|~d b", "(~d a)", "~d a.*b", "~d [ab]", "~u a+", '~d "a.test"', "~t json",
    "~h a:b", "~b x", "~e", "~q", "~dur >1s", "~d", "~c 4x", "~c", "& x", "x &", "!!x",
    "~d \\d", "~nothing x", "~d a{2}", "~c !200", "~m & x", "~d ~m", "! ~d a")


def test_it_reads_a_filter_as_the_listener_does(page):
    page.enter()
    flows = [flow(**fields) for fields in FIELDS]
    shown = [{name: value for name, value in fields.items() if value is not None}
             for fields in FIELDS]
    for text in FILTERS:
        test = parse_filter(text)
        assert page.browser.run(
            f"(test => {json.dumps(shown)}.filter(test).map(flow => flow.number))"
            f"(readLocally({json.dumps(text)}))") == [
                each.id for each in flows if test(each)], text
    left = page.browser.run(f"{json.dumps(OTHERS)}.filter(text => !readLocally(text))")
    assert left == list(OTHERS)


def test_rows_are_there_before_the_answer_which_has_the_last_word(page):
    page.fill(*(row(n, host=f"h{n % 3}.test", url=f"http://h{n % 3}.test/{n}")
                for n in range(1, 10)))
    page.enter()
    page.wait_rows(9)
    wait_until(lambda: page.browser.run("complete_"), "the whole list")
    page.browser.run("window.answers = []; window.real = fetch; window.fetch = (...of) "
                     "=> String(of[0]).startsWith('flows?') ? new Promise(done => "
                     "answers.push(() => done(real(...of)))) : real(...of)")
    page.apply("~d ^h2")
    assert page.urls() == [f"http://h2.test/{n}" for n in (8, 5, 2)]
    assert page.text("#count") == "3 flows …"
    # Meanwhile one has come that the page does not know
    page.fill(row(11, host="h2.test", url="http://h2.test/11"))
    page.browser.run("answers.shift()()")
    wait_until(lambda: page.urls() == [
        f"http://h2.test/{n}" for n in (11, 8, 5, 2)], page.urls)
    wait_until(lambda: page.text("#count") == "4 flows", lambda: page.text("#count"))
    page.apply("~d nobody")
    wait_until(lambda: page.urls() == [], page.urls)
    page.browser.run("answers.shift()()")
    wait_until(lambda: "No flow passes" in page.text("#nothing"), "what it says")
    page.apply("")
    assert len(page.urls()) == 9, "the list as it was"
    page.browser.run("answers.shift()()")
    page.wait_rows(10)
    assert page.browser.faults == []


def test_who_has_signed_out_is_shown_nothing(page):
    page.fill(*(row(n) for n in range(1, 4)))
    page.enter()
    page.wait_rows(3)
    wait_until(lambda: page.browser.run("complete_"), "the whole list")
    page.browser.run("keepWhole(); setRights(null)")
    wait_until(lambda: page.urls() == [], page.urls)
    assert page.browser.run("whole") is None
