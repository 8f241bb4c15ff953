"""A URL with secrets in its path or query is recorded without them, and replayed."""

import pytest

from cutthrough.recording.sessions.directory import Sessions
from tests.support.recordings import folder, recorded, run_verb, start
from tests.support.wait import wait_until

__all__ = ["folder", "start"]                # fixtures

pytestmark = pytest.mark.any_loop


@pytest.mark.parametrize("config", ["", 'recording_redact_query = ["token"]'],
                         ids=["plain", "query"])
def test_user_information_in_a_url(start, folder, make_origin, dial, config):
    """R80: the row that is made in C had it, and replay did not find the request."""
    targets = ["/f?u=http://bob:s3cret@b.test/x", "/f/http://bob:s3cret@b.test/x",
               "/f?u=http%3A%2F%2Fbob%3As3cret%40b.test"]
    targets += ["/x;token=s3cret", "/go/https%3A%2F%2Fb%2F%3Ftoken%3Ds3cret"] * bool(
        config)
    origin = make_origin()
    with dial(start("record", config=config)) as client:
        for target in targets:
            assert client.get(origin.url(target)).status == 200
    wait_until(lambda: recorded(folder) == len(targets), "the recordings")
    session = Sessions(folder).open("default")
    assert "s3cret" not in repr(list(session.recordings()))
    session.close()
    assert not [path for path in folder.iterdir() if b"s3cret" in path.read_bytes()]
    run_verb(folder, "mode", "replay")
    asked = len(origin.requests)
    with dial(start(config=config)) as client:
        for target in targets:
            assert client.get(origin.url(target)).status == 200, target
            if "token" in target:            # another secret is another request
                other = target.replace("s3cret", "other")
                assert client.get(origin.url(other)).status == 502
    assert len(origin.requests) == asked


def test_json_in_a_url_and_in_a_text(start, folder, make_origin, dial):
    """R79: it stayed. The same secret finds its recording, in whatever spelling."""
    config = 'recording_redact_json = ["$..password"]'
    target = "/f?x=%7B%22password%22%3A%22s3cret%22%7D"
    text = 'log {"password": "s3cret"}'
    origin = make_origin()

    def post(client, target, text):
        return client.ask(
            "POST", origin.url(target), f"Content-Length: {len(text)}",
            "Content-Type: text/plain", body=text.encode()).status

    proxy = start("record", config=config)
    with dial(proxy) as client:
        assert post(client, target, text) == 200
    wait_until(lambda: recorded(folder) == 1, "the recording")
    assert not [path for path in folder.iterdir() if b"s3cret" in path.read_bytes()]
    (line,) = proxy.wait_log(1)              # the log has that redaction, too
    assert line["url"].endswith("/f?x=%7B%22password%22%3A%22[redacted]%22%7D")
    run_verb(folder, "mode", "replay")
    with dial(start(config=config)) as client:
        asked = len(origin.requests)
        assert post(client, target, text) == 200
        assert post(client, target, text.replace("s3cret", "another")) == 502
        assert post(client, target.replace("s3cret", "another"), text) == 502
        assert len(origin.requests) == asked
