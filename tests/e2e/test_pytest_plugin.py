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
    files = sorted(one.name for one in (tmp_path / "cassettes/test_both").iterdir())
    assert len(files) == 6 and "manifest.json" in files
    plain.close()
    tls.close()
    for _ in range(2):
        status, again = run(text)
        assert status == 0, again
        assert [one for one in again.splitlines() if one.startswith("found")] == [
            one for one in first.splitlines() if one.startswith("found")]
    assert sorted(one.name for one in (tmp_path / "cassettes/test_both").iterdir()
                  ) == files


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


def test_a_miss_fails_the_test_with_the_nearest_recording_and_what_differs(run):
    status, said = run("""
        def test_missed(cutthrough):
            cutthrough.respond("http://a.example/items?page=1", text="x")
            try:
                get("http://a.example/items?page=2")
            except OSError:
                pass
    """)
    assert status == 1
    assert "no recording answers GET http://a.example/items?page=2: " in said
    assert "the nearest is recording 1" in said and "page" in said


@pytest.mark.parametrize(("mode", "asked"), [
    ("once", 1), ("new_episodes", 1), ("all", 2), ("none", 0)])
def test_modes_are_those_of_vcr(run, make_origin, mode, asked):
    """Each run asks once; the second and third time the cassette is there."""
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
    assert run("@pytest.mark.cassette(mode='x')\ndef test_a(): pass")[0] == 1


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
    for one in (tmp_path / "cassettes").rglob("*.json"):
        assert "s3cret" not in one.read_text(), one
        json.loads(one.read_text())


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
