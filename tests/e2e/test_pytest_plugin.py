"""The plugin of pytest, in runs of their own: record, replay, answer, miss."""

import json

import pytest

from tests.support.inner import Inner
from tests.support.inside import okay, origins, over_tls
from tests.support.origin import answer
from tests.support.programs import need

NUMBERED = [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(9)]


@pytest.fixture
def run(tmp_path):
    return Inner(tmp_path)


def test_a_test_is_recorded_once_and_replayed_without_its_origins(
        run, make_origin, tmp_path):
    plain = make_origin(answer(*NUMBERED))
    tls = make_origin(over_tls(okay, origins().sign("DNS:a.example")))
    text = f"""
        @pytest.mark.cassette
        def test_both():
            found = [get("http://127.0.0.1:{plain.port}/n") for _ in range(3)]
            found.append(get("https://a.example:{tls.port}/b"))
            code = "import urllib.request; print(urllib.request.urlopen(" \\
                "'https://a.example:{tls.port}/c').read())"
            found.append(subprocess.run([sys.executable, "-c", code],
                                        capture_output=True, text=True).stdout.strip())
            print("found", found)
            assert found[-2:] == ["ok", "b'ok'"]
    """
    status, first = run(text)
    assert status == 0, first
    folder = tmp_path / "cassettes/test_inner.test_both"
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) == 6 and "manifest.json" in files
    plain.close()
    tls.close()
    for _ in range(2):
        status, again = run(text)
        assert status == 0, again
        assert [line for line in again.splitlines() if line.startswith("found")] == [
            line for line in first.splitlines() if line.startswith("found")]
    assert sorted(path.name for path in folder.iterdir()) == files


def test_a_test_answers_its_own_requests_in_order_without_a_network(run):
    status, said = run("""
        def test_answers(cutthrough):
            url = "https://api.example.com/v1/items?page=1"
            cutthrough.respond(url, status=503)
            cutthrough.respond(url, json={"a": [1, "é"]}, headers={"X-A": "b"})
            with pytest.raises(Exception, match="503"):
                get(url)
            assert get(url) == get(url) == '{"a": [1, "\\\\u00e9"]}'
            assert [(one.method, one.url, one.status, one.verdict)
                    for one in cutthrough.requests] == [
                ("GET", url, status, "replayed") for status in (503, 200, 200)]

        def test_others_see_nothing_of_it(cutthrough):
            assert cutthrough.requests == []
            cutthrough.respond("http://a/", text="other", method="POST")
            request = urllib.request.Request("http://a/", b"x", method="POST")
            assert urllib.request.urlopen(request).read() == b"other"
    """)
    assert status == 0, said


def test_answers_of_the_test_come_before_recordings_and_are_not_kept(run, make_origin):
    """In replay a recording came first; with new_episodes the answer was written once
    more in each run; while a cassette was recorded it was an error."""
    origin = make_origin(answer(*NUMBERED * 9))
    base = f"http://127.0.0.1:{origin.port}"
    text = "".join(f"""
        @pytest.mark.cassette("{mode}", mode="{mode}")
        def test_{mode}(cutthrough):
            print("found", "{mode}", get("{base}/1"))
            cutthrough.respond("{base}/1", text="made", headers={{"Set-Cookie": "a=b"}})
            assert get("{base}/1") == "made"
            cutthrough.respond("{base}/1", text="again")
            print("found", "{mode}", get("{base}/2"))
            print("found", "{mode}", get("{base}/2"))
            answer = urllib.request.urlopen("{base}/1")
            assert answer.read() == b"again" and "Set-Cookie" not in answer.headers
            assert [one.verdict for one in cutthrough.requests].count("replayed") >= 2
    """ for mode in ("once", "new_episodes", "all"))
    first = run.passes(text)
    assert len(first) == 9 and len({*first}) == 9
    assert [len(run.cassette(mode)) for mode in ("once", "new_episodes", "all")
            ] == [3, 3, 3]
    assert len(origin.requests) == 9
    origin.close()
    text = text.replace('mode="all"', 'mode="none"')
    assert run.passes(text) == run.passes(text) == first
    assert [len(run.cassette(mode)) for mode in ("once", "new_episodes", "all")
            ] == [3, 3, 3]


def test_answers_are_given_by_patterns_and_made_of_the_request(run):
    status, said = run("""
        def ask(url, body=None, method=None):
            return urllib.request.urlopen(urllib.request.Request(
                url, body, method=method)).read().decode()

        def test_patterns(cutthrough):
            cutthrough.respond("https://api.example.com/v1/items/7", text="seven")
            cutthrough.respond("https://api.example.com/v1/items/*", text="any")
            cutthrough.respond("https://b.example.com/search?*", text="found")
            cutthrough.respond("https://api.example.com/v1/*", method="P*", json={
                "name": "{{ json.name }}", "id": "{{ request.segments[1] }}"},
                template=True)
            assert get("https://api.example.com/v1/items/1/a") == "any"
            assert get("https://api.example.com/v1/items/7") == "seven"
            assert get("https://b.example.com/search?q=a&p=2") == "found"
            said = ask("https://api.example.com/v1/users", b'{"name": "me"}')
            assert said == '{"name": "me", "id": "users"}'

        def test_nothing_else(cutthrough):
            cutthrough.respond("https://api.example.com/v1/items/*", text="any")
            for url in ("https://api.example.com/v1/items/1?a=b",
                        "https://other.example.com/v1/items/1"):
                with pytest.raises(OSError):
                    get(url)
    """)
    assert status == 1 and "2 passed, 1 error" in said, said
    assert "query: 'a=b', wanted exact ''" in said
    assert "host: 'other.example.com', wanted exact 'api.example.com'" in said


def test_a_test_sees_what_was_sent(run, make_origin):
    origin = make_origin(over_tls(answer(*NUMBERED), origins().sign("DNS:a.example")))
    text = f"""
        @pytest.mark.cassette
        def test_sent(cutthrough):
            base = "https://a.example:{origin.port}"

            def send(path, method, body):
                request = urllib.request.Request(
                    base + path, body, method=method, headers={{
                        "X-One": path, "Authorization": "Bearer s3cret"}})
                urllib.request.urlopen(request).read()

            send("/a?b=c", "POST", b'{{"a": 1}}')
            send("/a?b=d", "POST", b"two")
            cutthrough.respond(base + "/made", method="PUT", text="made")
            send("/made", "PUT", b'["made"]')
            send("/b", "GET", None)
            one, two, three, four = cutthrough.requests
            assert [sent.field("X-One") for sent in cutthrough.requests] == [
                "/a?b=c", "/a?b=d", "/made", "/b"]
            assert (one.json(), two.body, three.json(), four.body) == (
                {{"a": 1}}, b"two", ["made"], b"")
            assert one.field("authorization").startswith("[redacted")
            assert ("X-One", "/a?b=c") in one.fields and one.field("x-two") == ""
            print("found", [sent.verdict for sent in cutthrough.requests])
    """
    assert run.passes(text) == ["found ['ok', 'ok', 'replayed', 'ok']"]
    origin.close()
    assert run.passes(text) == [f"found {['replayed'] * 4}"]


def test_a_miss_fails_the_test_with_the_nearest_recording_and_what_differs(
        run, make_origin):
    """The log has room for the first 64 characters of it."""
    origin = make_origin(answer(*NUMBERED))
    text = f"""
        def post(query, body):
            urllib.request.urlopen(
                "http://127.0.0.1:{origin.port}/items?" + query, body).read()

        @pytest.mark.cassette
        def test_missed(cutthrough):
            post("page=1", b"one")
            post("page=1", b"two")
    """
    status, said = run(text)
    assert status == 0, said
    for query, body in (("page=2", "one"), ("page=1", "four"), ("page=1", "three")):
        text += f"""
            with pytest.raises(OSError):
                post("{query}", b"{body}")
        """
    text += """
            assert "recorded '1'" in cutthrough.requests[2].miss
    """
    status, said = run(text, "--cassette-mode=none")
    assert status == 1 and "1 passed, 1 error" in said, said
    url = f"POST http://127.0.0.1:{origin.port}/items?page="
    told = [part.split("\n\n")[0] for part in said.split("no recording answers ")[1:]]
    nearest = f"no recording matches\n    the nearest is recording 1, {url}1\n"
    assert told[0].startswith(f"{url}2: {nearest}    query key page: '2', recorded '1'")
    assert told[1].startswith(f"{url}1: {nearest}    body: 4 bytes, recorded 3, ")
    assert told[2].startswith(f"{url}1: {nearest}    body: 5 bytes, recorded 3, ")


@pytest.mark.parametrize(("mode", "asked"), [
    ("once", 1), ("new_episodes", 1), ("all", 2), ("none", 0)])
def test_modes_are_those_of_vcr(run, make_origin, mode, asked):
    """Each run sends one request; in the second and third run the cassette is there."""
    origin = make_origin(answer(*NUMBERED))
    text = f"""
        @pytest.mark.cassette("shared", mode="{mode}")
        def test_one():
            try:
                assert get("http://127.0.0.1:{origin.port}/n") == "0"
            except OSError:
                pass
    """
    assert run(text)[0] == (1 if mode == "none" else 0)
    run(text)
    assert len(origin.connections) == asked


def test_a_mode_of_the_command_line_is_before_that_of_the_marker(run, make_origin):
    origin = make_origin(answer(*NUMBERED))
    text = f"""
        @pytest.mark.cassette
        def test_one():
            get("http://127.0.0.1:{origin.port}/n")
    """
    status, said = run(text, "--cassette-mode=none")
    assert status == 1 and not origin.connections and "nothing is recorded" in said


def test_secrets_are_not_in_the_cassette(run, make_origin, tmp_path):
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Set-Cookie: id=s3cret\r\nContent-Length: 27\r\n\r\n"
        b'{"client_secret": "s3cret"}'))
    status, said = run(f"""
        @pytest.mark.cassette
        def test_one():
            request = urllib.request.Request(
                "http://127.0.0.1:{origin.port}/", headers={{
                "Authorization": "Bearer s3cret", "X-Api-Key": "s3cret"}})
            urllib.request.urlopen(request).read()
    """)
    assert status == 0, said
    for path in (tmp_path / "cassettes").rglob("*.json"):
        assert "s3cret" not in path.read_text(), path
        json.loads(path.read_text())


def test_the_environment_is_as_before_behind_the_test(run):
    need("env")
    status, said = run("""
        def test_inside(cutthrough, monkeypatch):
            assert os.environ["https_proxy"] == cutthrough.url
            assert os.environ["SSL_CERT_FILE"] == str(cutthrough.bundle)
            assert not os.environ["no_proxy"]

        def test_outside():
            assert "https_proxy" not in os.environ
            assert os.environ["no_proxy"] == "internal.example"
    """, no_proxy="internal.example")
    assert status == 0, said


def test_a_request_with_a_secret_is_replayed_in_another_run(run, make_origin):
    """Each run makes hashes with a key of its own, as each machine does."""
    origin = make_origin(answer(*NUMBERED))
    (run.folder / "proxy.toml").write_text(
        'recording_redact_query = ["api_key"]\nrecording_redact_json = ["$.key"]\n'
        'recording_redact_body = ["key=(.*)"]\n')
    text = f"""
        def ask(path, body=None):
            url = "http://127.0.0.1:{origin.port}" + path
            print("found", urllib.request.urlopen(url, body).read())

        @pytest.mark.cassette
        def test_one():
            ask("/query?api_key=s3cret")
            ask("/json", b'{{"key": "s3cret"}}')
            ask("/body", b"key=s3cret")
            ask("/body", b"key=s3cret")
    """
    flags = ("-o", "cutthrough_config=proxy.toml")
    first = run.passes(text, *flags)
    origin.close()
    assert len(first) == 4 and run.passes(text, *flags) == first
    # Another secret is in the same place: no trace of either is in the cassette
    assert run.passes(text.replace("s3cret", "other"), *flags) == first
    for path in (run.folder / "cassettes/test_inner.test_one").iterdir():
        assert "s3cret" not in path.read_text() and "redacted:" not in path.read_text()


def test_a_cassette_with_hashes_of_an_unknown_key_is_replayed(run, make_origin):
    origin = make_origin(answer(*NUMBERED))
    (run.folder / "proxy.toml").write_text('recording_redact_query = ["api_key"]\n')
    flags = ("-o", "cutthrough_config=proxy.toml")
    text = f"""
        @pytest.mark.cassette("one")
        def test_one():
            print("found", get("http://127.0.0.1:{origin.port}/?api_key=s3cret"))
    """
    first = run.passes(text, *flags)
    (name,) = run.cassette("one")
    path = run.folder / "cassettes/one" / name
    path.write_text(path.read_text().replace("[redacted]", f"[redacted:{'0' * 16}]"))
    assert run.passes(text, *flags) == first


def test_each_test_has_a_cassette_of_its_own(run, make_origin):
    origin = make_origin(answer(*NUMBERED))
    text = f"""
        def ask():
            print("found", get("http://127.0.0.1:{origin.port}/"))

        @pytest.mark.cassette
        @pytest.mark.parametrize("n", ["a/b", "a-b", "é"])
        def test_one(n):
            ask()

        @pytest.mark.cassette
        class TestA:
            def test_one(self):
                ask()

        class TestB:
            @pytest.mark.cassette
            def test_one(self):
                ask()
    """
    (run.folder / "test_other.py").write_text("from test_inner import *\n")
    status, said = run(text, "test_other.py")
    assert status == 0 and "10 passed" in said, said
    names = sorted(path.name for path in (run.folder / "cassettes").iterdir())
    assert len(names) == len(origin.requests) == 10
    assert {"test_inner.test_one-a-b", "test_inner.TestA.test_one",
            "test_inner.TestB.test_one", "test_other.test_one-a-b"} < {*names}


def test_a_cassette_has_the_name_of_its_marker(run, make_origin):
    origin = make_origin(answer(*NUMBERED))
    run.passes(f"""
        @pytest.mark.cassette(name="shared/one")
        def test_a():
            get("http://127.0.0.1:{origin.port}/")

        @pytest.mark.cassette("shared/one", "none")
        def test_b():
            get("http://127.0.0.1:{origin.port}/")
    """)
    assert len(run.cassette("shared/one")) == len(origin.requests) == 1


def test_what_is_wrong_with_a_marker_is_said(run):
    wrong = {
        "'../../esc'": "'../../esc' is no name of a directory inside cassettes/",
        "'/tmp/esc'": "'/tmp/esc' is no name", "'a/../b'": "'a/../b' is no name",
        "'.'": "'.' is no name", "''": "'' is no name", "3": "3 is no name",
        "mode='x'": "mode 'x' is not one of once, new_episodes, none, all",
        "nam='x'": "cassette() got an unexpected keyword argument 'nam'",
        "'a', 'once', 'b'": "cassette() takes from 0 to 2 positional arguments"}
    status, said = run("".join(
        f"@pytest.mark.cassette({given})\ndef test_{number}(): pass\n"
        for number, given in enumerate(wrong)))
    assert status == 1 and f"{len(wrong)} errors" in said, said
    for why in wrong.values():
        assert f"the marker cassette: {why}" in said, said
    assert not (run.folder / "cassettes").exists()


def test_a_test_that_fails_leaves_the_cassette_as_it_was(run, make_origin):
    origin = make_origin(answer(*NUMBERED * 9))
    modes = ("once", "new_episodes", "all")
    text = "".join(f"""
        @pytest.mark.cassette("{mode}", mode="{mode}")
        def test_{mode}():
            get("http://127.0.0.1:{origin.port}/a")
            assert not os.environ.get("FAILS")
            if os.environ.get("SKIPS"):
                pytest.skip("in its middle")     # of the inner run: what is tested
            get("http://127.0.0.1:{origin.port}/b")
    """ for mode in modes)
    for word in ("FAILS", "SKIPS"):
        status, said = run(text, **{word: "1"})
        assert status == (word == "FAILS"), said
        for mode in modes:
            assert f"{mode}: 1 recorded answers are not kept: the test" in said, said
            assert not (run.folder / "cassettes" / mode).exists()
    run.passes(text)
    files = [run.cassette(mode) for mode in modes]
    assert [*map(len, files)] == [2, 2, 2]
    assert run(text.replace("/a", "/c"), FAILS="1")[0] == 1
    assert [run.cassette(mode) for mode in modes] == files


def test_the_cassette_of_a_test_that_fails_as_expected_is_kept(run, make_origin):
    origin = make_origin(answer(*NUMBERED))
    text = f"""
        @pytest.mark.cassette("one")
        @pytest.mark.xfail                   # of the inner run: what is tested
        def test_one():
            get("http://127.0.0.1:{origin.port}/")
            assert False
    """
    assert run(text)[0] == run(text)[0] == 0
    assert len(run.cassette("one")) == len(origin.requests) == 1
