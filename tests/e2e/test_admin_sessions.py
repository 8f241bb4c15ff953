"""A browser's session: a cookie and a key, which together stand for the token (R39)."""

import contextlib
import http.cookies
import json
import types

import pytest

from cutthrough.admin.rights import Tokens
from cutthrough.admin.sessions import FIELD, LIFE_S, MOST_SESSIONS, Sessions
from tests.capture.flows import row
from tests.support.admin import AUTHORIZED, TOKEN, administered
from tests.support.browser import needs_chromium
from tests.support.flows import database as database
from tests.support.flows import fill
from tests.support.flows import start as start
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def ask(operator, method, path, **fields):
    """Status, content, and the Set-Cookie field."""
    with contextlib.closing(operator.connection()) as made:
        made.request(method, path, headers=fields)
        answer = made.getresponse()
        return answer.status, answer.read().decode(), answer.getheader("Set-Cookie")


def begin(operator, token=TOKEN):
    """The fields of a session's requests, the answer, and the cookie's field."""
    status, text, field = ask(
        operator, "POST", "/session", Authorization=f"Bearer {token}")
    assert status == 200, text
    session = json.loads(text)
    return {"Cookie": field.partition(";")[0], FIELD: session["key"]}, session, field


def test_a_session_takes_the_place_of_the_token(start, database):
    _, operator = start()
    wait_until(database.exists, "the writer's file")
    fill(database, [row(1)])
    fields, session, cookie = begin(operator)
    assert session["rights"] == sorted(session["rights"]) and len(session["rights"]) > 3
    assert cookie.startswith(f"cutthrough-{operator.where}=")
    assert cookie.partition(";")[2] == " Path=/; HttpOnly; SameSite=Strict"
    status, text, _ = ask(operator, "GET", "/flows", **fields)
    assert status == 200 and len(json.loads(text)["flows"]) == 1
    assert ask(operator, "DELETE", "/connections?all=true", **fields)[0] == 200
    assert json.loads(ask(operator, "GET", "/session", **fields)[1])["rights"]
    more = fields | {"Cookie": f"a=b; {fields['Cookie']}; c"}
    assert ask(operator, "GET", "/flows", **more)[0] == 200


def test_neither_of_its_secrets_opens_anything_alone(start):
    """A cookie goes to every port of this host, and with requests of pages there."""
    _, operator = start()
    fields, session, _ = begin(operator)
    other, _, _ = begin(operator)
    cookie = fields["Cookie"]
    for wrong in (
            {"Cookie": cookie}, {FIELD: session["key"]}, {"Cookie": cookie, FIELD: ""},
            {"Cookie": cookie, FIELD: "x"}, {"Cookie": cookie, FIELD: "\u00ff"},
            {"Cookie": cookie, FIELD: other[FIELD]},
            {"Cookie": cookie.partition("=")[0], FIELD: session["key"]},
            {"Cookie": "=", FIELD: session["key"]}, fields | {"Authorization": "x"},
            {"Cookie": cookie, "Authorization": f"Bearer {session['key']}"}):
        assert ask(operator, "GET", "/flows", **wrong)[0] == 401, wrong
        assert ask(operator, "POST", "/reload", **wrong)[0] == 401, wrong
        assert json.loads(ask(operator, "GET", "/session", **wrong)[1])["rights"] == []
    for site in ({"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"},
                 {"Origin": "http://127.0.0.1:1"}):
        for method, path in (("GET", "/flows"), ("POST", "/reload"),
                             ("POST", "/session"), ("DELETE", "/session")):
            assert ask(operator, method, path, **fields, **site)[0] == 403, path


def test_a_session_is_begun_by_a_token_alone(start):
    _, operator = start()
    fields, _, _ = begin(operator)
    for wrong in ({}, {"Authorization": "Bearer guess"}, {"Authorization": "Bearer"},
                  {"Authorization": f"Basic {TOKEN}"}, fields):
        status, text, cookie = ask(operator, "POST", "/session", **wrong)
        assert (status, text, cookie) == (401, "this is no admin token\n", None)


def test_a_listener_without_a_token_has_no_sessions(loop_name, directory, opened):
    _, operator = administered(opened, directory("proxy"), loop_name, token="")
    assert ask(operator, "POST", "/session", **AUTHORIZED)[0] == 403
    assert json.loads(operator.get("/session")) == {
        "name": "", "rights": [], "read_only": True}


def test_it_ends_when_its_owner_or_a_reload_says_so(loop_name, directory, opened):
    proxy, operator = administered(opened, directory("proxy"), loop_name)
    first, _, _ = begin(operator)
    second, _, _ = begin(operator)
    status, _, cookie = ask(operator, "DELETE", "/session", **first)
    assert status == 200 and cookie.endswith("; Max-Age=0")
    assert ask(operator, "POST", "/settle", **first)[0] == 401
    text = proxy.config_file.read_text()
    proxy.config_file.write_text(text.replace(TOKEN, "another-token-of-tests"))
    assert ask(operator, "POST", "/reload", **second)[0] == 200
    assert ask(operator, "POST", "/reload", **second)[0] == 401
    assert "rror" not in proxy.stderr()


def test_a_session_has_the_rights_of_its_token(loop_name, directory, opened, tmp_path):
    (tmp_path / "reader").write_text("a-token-that-reads\n")
    (tmp_path / "reader").chmod(0o600)
    _, operator = administered(
        opened, directory("proxy"), loop_name,
        f'[admin_tokens.on-call]\ntoken_file = "{tmp_path}/reader"\n')
    fields, session, _ = begin(operator, "a-token-that-reads")
    assert (session["name"], session["rights"]) == ("on-call", ["read"])
    assert ask(operator, "POST", "/reload", **fields)[:2] == (
        403, "the token on-call has no right operate\n")


def request(cookie, key):
    fields = types.SimpleNamespace(
        get=lambda name, default="": key if name == FIELD else default,
        getall=lambda name, default: (cookie,))
    return types.SimpleNamespace(headers=fields)


def test_sessions_are_bounded_in_number_and_age():
    now = [0.0]
    kept = Sessions(lambda: now[0])
    made = []
    for _ in range(MOST_SESSIONS + 1):
        field, key = kept.begin(b"token")
        made.append(request(field.partition(";")[0], key))
    assert [bool(kept.token_of(one)) for one in made] == [
        False, *[True] * MOST_SESSIONS]
    now[0] = LIFE_S
    assert not any(kept.token_of(one) for one in made)
    assert next(iter(http.cookies.SimpleCookie(field))) == "cutthrough"


def test_a_session_may_read_the_paths_of_events_if_its_token_may():
    """(R81)"""
    tokens = Tokens()
    tokens.configure("token", ())
    field, key = tokens.sessions.begin(b"token")
    of_session = request(field.partition(";")[0], key)
    assert tokens.has(of_session, "read")
    tokens.configure("another", ())
    assert not tokens.has(of_session, "read")


# In a browser

@needs_chromium
@pytest.mark.dials_out              # it checks if IPv6 has a route
def test_the_token_is_given_once(page):
    """An F5, a link and Back lost it."""
    browser = page.browser
    page.fill(row(1))
    page.enter()
    page.wait_rows(1)
    assert browser.run("[$('token').value, $('token').hidden, document.cookie]") == [
        "", True, ""]
    browser.send("Page.reload")
    wait_until(lambda: browser.run("typeof rights !== 'undefined'") and page.rows(),
               "the row after F5")
    assert page.text("#who") == "admin token"
    browser.click("nav a:nth-child(3)")
    wait_until(lambda: browser.run("location.pathname") == "/recordings", "the page")
    wait_until(lambda: browser.run("typeof $ !== 'undefined' && !$('who').hidden"),
               "its session")
    wait_until(lambda: "recording_directory" in page.text("#state"), "a 404")
    browser.faults.clear()                  # and the console names it
    browser.run("history.back()")
    wait_until(lambda: browser.run("location.pathname") == "/traffic" and page.rows(),
               "the row after Back")
    browser.click("#sign-out")
    wait_until(lambda: page.text("#state") == "enter the admin token", "its end")
    wait_until(lambda: page.rows() == [], "an empty list")
    assert browser.run("localStorage.length") == 0
    browser.send("Page.reload")
    wait_until(lambda: browser.run("typeof rights !== 'undefined'")
               and page.text("#state") == "enter the admin token", "no session")
    assert not browser.run("$('token').hidden") and browser.faults == []


@needs_chromium
@pytest.mark.dials_out              # it checks if IPv6 has a route
def test_a_server_on_another_port_gets_the_cookie_and_can_do_nothing(page, make_origin):
    """Browsers send cookies to every port of a host."""
    page.enter()
    origin = make_origin()
    page.browser.open(f"http://{origin.authority}/")
    cookie = wait_until(lambda: origin.requests and origin.requests[0].get("Cookie"),
                        "a request")
    assert cookie.startswith(f"cutthrough-{page.operator.where}=")
    assert page.browser.run("[document.cookie, localStorage.length]") == ["", 0]
    for path, method in (("flows", "GET"), ("reload", "POST")):
        assert ask(page.operator, method, f"/{path}", Cookie=cookie)[0] == 401
        there = f"http://127.0.0.1:{page.operator.where}/{path}"
        asked = ("fetch({!r}, {{method: {!r}, credentials: 'include', headers: {}}})"
                 ".then(() => 'answered', () => 'refused')")
        for headers in ("{}", "{'X-Cutthrough-Key': 'x'}"):
            assert page.browser.run(asked.format(there, method, headers)) == "refused"
