"""What a refusal says: the request's id, a rule's message, contents of the operator."""

import json
import subprocess
import sys

import pytest

from tests.support.proxy import ROOT, clean_environment

pytestmark = pytest.mark.any_loop

POLICY = """
[[rules]]
name = "no"
action = "deny"
hosts = ["refused.invalid"]
message = "ask <it> for “access”"
[[rules]]
action = "allow"
addresses = ["127.0.0.1"]
"""


def name_of(reply):
    return reply.get("X-Request-Id")


def test_a_refusal_has_the_id_that_the_log_has(start_policy, dial, make_origin):
    """R13: it had nothing by which an operator finds the line of a user who asks."""
    proxy = start_policy(POLICY)
    client = dial(proxy)
    replies = [client.get("http://refused.invalid/"),
               client.ask("HEAD", "http://refused.invalid/"),
               client.ask("CONNECT", "refused.invalid:443"),
               dial(proxy).get("http://refused.invalid/", auth=None),
               dial(proxy).ask("GET", "nonsense")]
    lines = proxy.wait_log(len(replies))
    assert [name_of(reply) for reply in replies] == [line["id"] for line in lines]
    assert [reply.status for reply in replies] == [403, 403, 403, 407, 400]
    assert replies[0].body.decode() == (
        "403 destination_denied: ask <it> for “access”\n"
        f"request {lines[0]['id']}\n")
    assert replies[1].body == b"" and replies[1].get("Content-Length") == replies[
        0].get("Content-Length")
    assert replies[3].body.endswith(f"\nrequest {lines[3]['id']}\n".encode())
    assert dial(proxy).get(make_origin().url()).get("X-Request-Id") is None


def test_pages_stand_for_the_contents(start_policy, dial, directory):
    pages = directory("pages")
    (pages / "destination_denied.html").write_text("<p>$text</p> $reason $request $no")
    (pages / "407.json").write_text('{"code": "$reason", "id": "$request"}')
    (pages / "default.txt").write_text("$status $phrase")
    (pages / "README").write_text("is no page")
    proxy = start_policy(POLICY, f'error_pages = "{pages}"\n')
    reply = dial(proxy).get("http://refused.invalid/?<script>")
    assert reply.get("Content-Type") == "text/html; charset=utf-8"
    assert reply.body.decode() == (
        "<p>ask &lt;it&gt; for “access”</p> destination_denied "
        f"{name_of(reply)} $no")
    assert proxy.wait_log(1)[0]["id"] == name_of(reply)
    head = dial(proxy).ask("HEAD", "http://refused.invalid/")
    assert head.body == b"" and int(head.get("Content-Length")) >= len(reply.body) - 4
    reply = dial(proxy).get("http://a.invalid/", auth=None)
    assert json.loads(reply.body) == {"code": "auth_required", "id": name_of(reply)}
    assert reply.get("Proxy-Authenticate").startswith("Basic ")
    reply = dial(proxy).ask("GET", "nonsense")
    assert (reply.body, reply.get("Content-Type")) == (
        b"400 Bad Request", "text/plain; charset=utf-8")


def test_a_reload_brings_other_pages(start_policy, dial, directory):
    pages = directory("pages")
    (pages / "403.txt").write_text("before")
    proxy = start_policy(POLICY, f'error_pages = "{pages}"\n')
    client = dial(proxy)
    assert client.get("http://refused.invalid/").body == b"before"
    (pages / "403.txt").write_text("after")
    proxy.hup()
    assert client.get("http://refused.invalid/").body == b"after"


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("destination_denide.html", b"",
     "is no outcome, no status and not default; did you mean destination_denied.html?"),
    ("ok.html", b"", "is no outcome, no status and not default"),
    ("403.html", b"\xff", "is not UTF-8"),
    ("403.html", b"a" * 8193, "has more than 8192 bytes")])
def test_a_page_that_would_never_be_shown_is_refused(
        directory, name, content, reason):
    pages = directory("pages")
    (pages / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "check", "--error-pages", str(pages)],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"--error-pages: {pages / name}: {reason}" in done.stderr


def test_the_realm_is_the_operators(start_proxy, dial, directory):
    proxy = start_proxy(config='realm = "Team A"\n')
    reply = dial(proxy).get("http://127.0.0.1:1/", auth=None)
    assert reply.status == 407
    assert reply.get("Proxy-Authenticate") == 'Basic realm="Team A", charset="UTF-8"'
    assert reply.body.startswith(b"407 auth_required: ")
    proxy.reload('realm = "B"\n')
    reply = dial(proxy).get("http://127.0.0.1:1/", auth=None)
    assert reply.get("Proxy-Authenticate") == 'Basic realm="B", charset="UTF-8"'
