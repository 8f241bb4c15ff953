"""The page "Recordings": sessions, misses, hits; missing answers are recorded."""

import contextlib
import io
import json
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from cutthrough.cli import main as cli
from cutthrough.recording.sessions.directory import Sessions
from tests.support.admin import AUTHORIZED, TOKEN, TOLD, Operator
from tests.support.browser import needs_chromium
from tests.support.recordings import RULE, fill, made
from tests.support.recordings_page import ask, get
from tests.support.traffic import faults
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

AXE = find_spec("axe_core_python")
HOSTILE = "<img src=x onerror=pwned=1>"
in_browser = [
    needs_chromium,
    pytest.mark.dials_out]


@pytest.fixture
def folder(directory):
    return directory("sessions")


@pytest.fixture
def start(start_policy, folder):
    """Starts a proxy that replays, and an operator of it."""
    def run(config=""):
        proxy = start_policy(
            RULE.format(mode="replay", keys=""),
            f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
            f'recording_directory = "{folder}"\n{config}')
        ports = wait_until(lambda: TOLD.findall(proxy.stderr()), proxy.stderr)
        return proxy, Operator(int(ports[-1]))
    return run


# The API

def test_a_session_goes_from_one_proxy_to_another(start, folder, directory, tmp_path):
    """The archive is what the verb exports, and the verb imports it."""
    fill(folder, *(made(9, f"/{n}", body=bytes([n]) * n) for n in range(1, 4)))
    _, operator = start()
    status, data, fields = fetch(operator, "GET", "/sessions/default/export")
    assert (status, fields["Content-Type"]) == (200, "application/x-tar")
    assert fields["Content-Disposition"] == 'attachment; filename="default.tar"'
    for name in ("copy", "copy"):            # to a new one, and to one that is there
        status, answer, _ = fetch(operator, "POST", f"/sessions/{name}/import", data)
        assert (status, json.loads(answer)) == (200, {"added": 3, "other_key": False})
    assert len(get(operator, "/sessions/copy")["recordings"]) == 6
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(tmp_path / "export")     # our own, of a moment ago
    other = directory("other")
    assert cli.main(["recordings", "import", "--directory", str(other), "mine",
                     str(tmp_path / "export")]) == 0
    with contextlib.closing(Sessions(other)) as sessions:
        mine = sessions.open("mine").recordings()
        assert [recording.request.path for recording in mine] == [
            "/1", "/2", "/3"]


@pytest.mark.parametrize(("member", "why"), [
    ("../outside.json", "is no file of an export"), ("a.yaml", "is no file"),
    ("link.json", "is no file"), ("a.json", "has no manifest"), ("", "is no tar")])
def test_an_archive_of_something_else_is_refused(start, folder, member, why):
    _, operator = start()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo(member)
        if member == "link.json":
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    data = file.getvalue() if member else b"no archive" * 100
    status, text, _ = fetch(operator, "POST", "/sessions/new/import", data)
    assert status == 400 and why.encode() in text
    assert get(operator, "/sessions")["sessions"] == []


def test_without_the_right_nothing_is_imported(start, folder):
    fill(folder, made(9, "/1"))
    _, operator = start()
    for method, path in (("GET", "export"), ("POST", "import")):
        connection = operator.connection()
        connection.request(method, f"/sessions/default/{path}")
        assert connection.getresponse().status == 401


def fetch(operator, method, path, content=None):
    connection = operator.connection()
    try:
        connection.request(method, path, content, AUTHORIZED)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()



def test_sessions_and_their_recordings_are_listed(start, folder):
    fill(folder, *(made(9, f"/{n}", body=b"x" * n) for n in range(1, 6)))
    fill(folder, made(9, "/other"), name="other")
    (folder / "broken.session").write_text("no session")
    _, operator = start()
    answer = get(operator, "/sessions")
    assert (answer["mode"], answer["session"]) == ("rules", "default")
    broken, default, other = answer["sessions"]
    assert "error" in broken and broken["name"] == "broken"
    assert (default["recordings"], other["recordings"]) == (5, 1)
    page = get(operator, "/sessions/default?limit=3")
    assert [row["url"] for row in page["recordings"]] == [
        f"http://127.0.0.1:9/{n}" for n in (5, 4, 3)]
    assert page["next"] == 3
    page = get(operator, "/sessions/default?limit=3&before=3")
    assert [row["number"] for row in page["recordings"]] == [2, 1]
    assert page["next"] is None
    page = get(operator, "/sessions/default?search=xxxxx")
    assert [row["number"] for row in page["recordings"]] == [5]


def test_reading_and_changing_take_the_token(start, folder):
    fill(folder, made(9))
    _, operator = start()
    for method, path in (
            ("GET", "/sessions"), ("GET", "/sessions/default"), ("GET", "/replays"),
            ("GET", "/sessions/default/1"), ("PUT", "/sessions/default/1"),
            ("DELETE", "/sessions/default/1"), ("DELETE", "/sessions/default"),
            ("PUT", "/sessions/new"), ("PATCH", "/sessions/default")):
        assert operator.ask(method, path)[0] == 401, path
    assert operator.ask("GET", "/recordings")[0] == 200
    assert len(Sessions(folder).open("default")) == 1


@pytest.mark.parametrize("method, path, content, status", [
    ("GET", "/sessions/none", None, 404), ("GET", "/sessions/default/7", None, 404),
    ("GET", "/sessions/..%2Fdefault", None, 404),
    ("DELETE", "/sessions/none", None, 404),
    ("GET", "/sessions/default?limit=0", None, 400),
    ("DELETE", "/sessions/default/7", None, 404),
    ("PUT", "/sessions/default/1", {"request": 1}, 400),
    ("PUT", "/sessions/default/1", [1], 400),
    ("GET", "/sessions/broken", None, 503),
])
def test_what_cannot_be_is_refused(start, folder, method, path, content, status):
    fill(folder, made(9))
    (folder / "broken.session").write_text("no session")
    _, operator = start()
    assert ask(operator, method, path, content)[0] == status
    assert len(Sessions(folder).open("default")) == 1


def test_without_a_directory_there_is_nothing(start_policy):
    proxy = start_policy('[[rules]]\naction = "allow"\n',
                         f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n')
    operator = Operator(int(wait_until(
        lambda: TOLD.findall(proxy.stderr()), proxy.stderr)[-1]))
    assert ask(operator, "GET", "/sessions")[0] == 404
    assert get(operator, "/replays")["misses"] == []


def test_an_edit_is_redacted_and_replayed(start, folder, dial):
    """R59: an operator's additions are redacted like a recording."""
    fill(folder, made(9), made(9, "/b"))
    proxy, operator = start("workers = 2\n")
    client = dial(proxy)
    assert client.get("http://127.0.0.1:9/a").body == b"hello"
    table = get(operator, "/sessions/default/1")["recording"]
    table["response"]["status"] = 203
    table["request"]["fields"] = [["Authorization", "Bearer secret"]]
    assert ask(operator, "PUT", "/sessions/default/1", table)[0] == 200
    wait_until(lambda: client.get("http://127.0.0.1:9/a").status == 203, "the edit")
    assert "secret" not in json.dumps(get(operator, "/sessions/default/1"))
    assert ask(operator, "DELETE", "/sessions/default/1")[0] == 200
    wait_until(lambda: client.get("http://127.0.0.1:9/a").status == 502, "deleted")
    assert ask(operator, "DELETE", "/sessions/default")[0] == 200
    wait_until(lambda: client.get("http://127.0.0.1:9/b").status == 502, "deleted")


def test_a_session_is_made_and_its_bounds_are_set(start, folder):
    """PUT of a session was 405, and bounds could be set for new ones alone."""
    _, operator = start('recording_count = 7\nrecording_redact_query = ["token"]\n')
    assert ask(operator, "PUT", "/sessions/a", {
        "age_s": 60, "comment": "for CI", "redaction": {"fields": ["X-Secret"]}}) == (
            200, {"created": 1})
    assert ask(operator, "PUT", "/sessions/b")[0] == 200
    kept = {name: Sessions(folder).open(name).manifest for name in "ab"}
    assert (kept["a"].count, kept["a"].age_s, kept["a"].comment) == (7, 60, "for CI")
    assert kept["a"].redaction.fields == ("x-secret",)
    assert kept["b"].redaction.query == ("token",)
    session = Sessions(folder).open("b")
    session.add([made(9), made(9, "/b"), made(9, "/c")])
    assert ask(operator, "PATCH", "/sessions/b", {"count": 2}) == (
        200, {"count": 2, "age_s": 0, "recordings": 2})
    left = session.recordings()
    assert [recording.request.path for recording in left] == ["/b", "/c"]
    for method, path, content, status in (
            ("PUT", "/sessions/a", None, 409), ("PUT", "/sessions/..a", None, 400),
            ("PUT", "/sessions/c", {"redaction": {"body": ["("]}}, 400),
            ("PUT", "/sessions/c", {"redaction": {"json": ["$[0]"]}}, 400),
            ("PUT", "/sessions/c", {"size": 1}, 400),
            ("PATCH", "/sessions/b", {"count": -1}, 400),
            ("PATCH", "/sessions/none", {"count": 1}, 404)):
        assert ask(operator, method, path, content)[0] == status, (path, content)
    assert Sessions(folder).names() == ["a", "b"]


def test_every_read_is_logged_with_who_has_asked(start, folder):
    """R59: changes were logged, and reads were not."""
    fill(folder, made(9))
    proxy, operator = start()
    for path in ("/sessions/default", "/sessions/default?search=hello",
                 "/sessions/default/1", "/sessions"):
        get(operator, path)
    assert ask(operator, "GET", "/sessions/default/7")[0] == 404
    lines = [line.partition("recordings: ")[2] for line in proxy.stderr().splitlines()
             if " session default" in line and "read" in line]
    assert lines == [f"127.0.0.1 read {what} of session default" for what in (
        "1 rows", "1 rows with 'hello'", "recording 1", "recording 7")]


def test_a_pattern_that_no_worker_can_use_is_refused(start, folder):
    """Each worker logged the fault later, and the recording was gone."""
    fill(folder, made(9))
    _, operator = start()
    table = get(operator, "/sessions/default/1")["recording"]
    table["patterns"] = [{"part": "path", "how": "regex", "value": "("}]
    status, said = ask(operator, "PUT", "/sessions/default/1", table)
    assert status == 400 and "is no regular expression" in said


def test_hits_and_misses_of_all_workers_are_told(start, folder, dial):
    fill(folder, made(9, query="page=1"), made(9, "/b"))
    proxy, operator = start("workers = 2\n")
    for _ in range(10):
        assert dial(proxy).get("http://127.0.0.1:9/b").status == 200
    for n in range(10):
        assert dial(proxy).get(f"http://127.0.0.1:9/a?page={n + 2}").status == 502
    wait_until(lambda: [row["hits"] for row in get(
        operator, "/sessions/default")["recordings"]] == [10, 0], "hits")
    answer = get(operator, "/replays")
    assert answer["missed"] == 10
    misses = answer["misses"]
    assert [row["url"] for row in misses] == [
        f"http://127.0.0.1:9/a?page={n + 2}" for n in reversed(range(10))]
    assert misses[0]["nearest"] == 1 and misses[0]["nearest_url"].endswith("page=1")
    assert misses[0]["differences"] == ["query key page: '11', recorded '1'"]
    # A hundred are remembered by each worker
    client = dial(proxy)
    for _ in range(120):
        client.get("http://127.0.0.1:9/c")
    answer = get(operator, "/replays")
    assert answer["missed"] == 130 and 100 <= len(answer["misses"]) <= 110


def test_misses_are_forgotten_with_their_session_and_not_with_the_mode(
        start, folder, dial):
    fill(folder, made(9))
    fill(folder, made(9), name="other")
    proxy, operator = start()
    assert dial(proxy).get("http://127.0.0.1:9/c").status == 502
    assert ask(operator, "POST", "/mode?mode=replay")[0] == 200
    wait_until(lambda: "mode replay, session default" in proxy.stderr(), "the mode")
    assert len(get(operator, "/replays")["misses"]) == 1
    assert ask(operator, "POST", "/mode?session=other")[0] == 200
    wait_until(lambda: get(operator, "/replays")["misses"] == [], "the session")


# The page


class Page:
    def __init__(self, browser, operator):
        self.browser, self.operator = browser, operator

    def enter(self):
        self.browser.type("#token", TOKEN)
        self.browser.key("Enter", 13, "\r")
        self.wait("#state", "live")

    def wait(self, selector, text):
        wait_until(lambda: text in self.browser.text(selector),
                   lambda: f"{text}: {self.browser.text('body')}")

    def press(self, place, text):
        """The button of this text."""
        button = (f"[...document.querySelectorAll('{place} button')]"
                  f".find(button => button.textContent.includes({json.dumps(text)}))")
        wait_until(lambda: self.browser.run(f"!!{button}"), text)
        self.browser.run(f"{button}.click()")


@pytest.fixture
def page(start, browse):
    def run(scheme="light", size=(1280, 900)):
        proxy, operator = start()
        browser = browse()
        browser.look(*size, scheme)
        browser.open(f"http://127.0.0.1:{operator.where}/recordings")
        return proxy, Page(browser, operator)
    return run


class TestPage:
    pytestmark = in_browser

    def test_what_is_missing_is_recorded_by_one_click(self, page, folder, dial,
                                                      make_origin):
        origin = make_origin()
        fill(folder, made(origin.port, f"/{HOSTILE}", query="a=1"))
        proxy, page = page()
        browser, client = page.browser, dial(proxy)
        assert browser.text("#state") == "enter the admin token"
        page.enter()
        page.wait("#sessions", "in force")
        url = origin.url("/new?a=1")
        assert client.get(url).status == 502 and not origin.requests
        page.wait("#misses", url)
        page.wait("#misses", "path: /new, recorded")
        page.press("#misses", f"/{HOSTILE}")
        page.wait("#detail-title", "Recording 1 of default")
        browser.click("#close")
        browser.click("#record-missing")
        page.wait("#note", "mode cache")
        wait_until(lambda: dial(proxy).get(url).status == 200, "asked")
        page.press("#sessions", "default")
        page.wait("#recordings", url)
        browser.run("$('mode').value = 'replay'")
        browser.click("#apply")
        page.wait("#note", "mode replay")
        before = len(origin.requests)
        wait_until(lambda: proxy.stderr().count("mode replay, session default"), "mode")
        assert dial(proxy).get(url).status == 200 and len(origin.requests) == before
        assert browser.run("typeof pwned") == "undefined" and browser.faults == []
        assert {url.split("/")[2] for url in browser.requested if url[:5] != "data:"
                } == {f"127.0.0.1:{page.operator.where}"}, "no outside requests"

    def test_a_recording_is_searched_edited_and_deleted(self, page, folder, dial):
        fill(folder, *(made(9, f"/{n}", body=b"%d!" % n) for n in range(1, 121)))
        proxy, page = page()
        browser = page.browser
        page.enter()
        page.press("#sessions", "default")
        page.wait("#recordings", "/120")
        browser.click("#more")
        wait_until(lambda: browser.run("$('recordings').tBodies[0].rows.length") == 120,
                   "older ones")
        browser.type("#search", "77!")
        browser.key("Enter", 13, "\r")
        wait_until(lambda: browser.run("$('recordings').tBodies[0].rows.length") == 1,
                   "the search")
        page.press("#recordings", "77")
        page.wait("#detail-title", "Recording 77 of default")
        browser.run("$('text').value = $('text').value.replace('\"77!\"', '\"edit\"')")
        browser.click("#save")
        page.wait("#detail-note", "saved")
        wait_until(lambda: dial(proxy).get("http://127.0.0.1:9/77").body == b"edit",
                   "the edit")
        browser.type("#text", "{")
        browser.click("#save")
        wait_until(lambda: browser.run("$('detail-note').className") == "bad", "no")
        browser.click("#delete")
        browser.click("#sure-no")
        assert len(Sessions(folder).open("default")) == 120
        browser.click("#delete")
        browser.click("#sure-yes")
        wait_until(lambda: len(Sessions(folder).open("default")) == 119, "deleted")
        wait_until(lambda: not browser.run("$('detail').open"), "closed")
        page.press("#sessions", "delete")
        page.wait("#sure-text", "Delete the session default with 119 recordings?")
        browser.click("#sure-yes")
        wait_until(lambda: not (folder / "default.session").exists(), "the session")
        page.wait("#no-sessions", "None yet. A rule of the policy with "
                  'recording = "record" makes one, and so does '
                  "cutthrough run --cassette NAME -- COMMAND.")
        assert browser.faults == []

    def test_a_session_is_made_and_its_bounds_are_set(self, page, folder):
        """The page had no control for either."""
        fill(folder, *(made(9, f"/{n}") for n in range(5)))
        _, page = page()
        browser = page.browser
        page.enter()
        for selector, text in (("name", "for-ci"), ("count", "1000"), ("days", "30")):
            browser.type(f"#bounds-{selector}", text)
        browser.click("#make")
        page.wait("#bounds-note", "for-ci is made")
        page.wait("#sessions", "1,000, 30 d")
        kept = Sessions(folder).open("for-ci").manifest
        assert (kept.count, kept.age_s) == (1000, 30 * 86400)
        assert browser.faults == []
        browser.click("#make")
        page.wait("#bounds-note", "there is a session")
        # Of one that is there; an empty bound stays as it is
        page.press("#sessions", "default")
        assert browser.run("$('bounds-name').value") == "default"
        browser.run("$('bounds-count').value = 2; $('bounds-days').value = ''")
        browser.click("#set")
        page.wait("#sure-text", "Delete now what is beyond these bounds of default?")
        browser.click("#sure-no")
        assert len(Sessions(folder).open("default")) == 5
        browser.click("#set")
        browser.click("#sure-yes")
        page.wait("#bounds-note", "default has 2 recordings")
        left = Sessions(folder).open("default").recordings()
        assert [recording.request.path for recording in left] == ["/3", "/4"]
        (fault,) = browser.faults            # that name again
        assert "409 (Conflict)" in fault

    @pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_no_fault(self, page, folder, dial, scheme, size):
        """Rules of WCAG 2.2, levels A and AA, and axe's best practices."""
        if AXE is None or AXE.origin is None:
            pytest.skip("axe is not installed")
        fill(folder, made(9), made(9, "/b"))
        proxy, page = page(scheme, size)
        page.browser.run(Path(AXE.origin).with_name("axe.min.js").read_text())
        faulty = {"empty": faults(page)}
        page.enter()
        assert dial(proxy).get("http://127.0.0.1:9/c").status == 502
        page.wait("#misses", "/c")
        page.press("#sessions", "default")
        page.wait("#recordings", "/b")
        faulty["lists"] = faults(page)
        page.press("#recordings", "1")
        page.wait("#detail-title", "Recording 1")
        faulty["detail"] = faults(page)
        page.browser.click("#delete")
        faulty["sure"] = faults(page)
        assert not any(faulty.values()), json.dumps(faulty, indent=1)
        wide = page.browser.run("document.documentElement.scrollWidth")
        assert wide <= size[0]
