"""The plugin of pytest with clients that vendors publish, by its presets: recorded
once, replayed byte for byte without the vendor, and no key on the disk.

The origins answer as the vendors' documents say, with identifiers and accounts."""

import json
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from cutthrough.tools.presets import PRESETS
from tests.support.inner import Inner
from tests.support.inside import origins, over_tls
from tests.support.origin import Connection
from tests.support.proxy import ROOT

ACCOUNT = "acme-0123456789"

OPENAI = """
    import hashlib, os, uuid
    import openai

    def client():
        return openai.OpenAI(base_url="https://api.openai.com:{port}/v1", max_retries=0,
                             organization="{account}")

    def asked(words, **more):
        return dict(model="gpt", user=str(uuid.uuid4()), **more, messages=[
            dict(role="user", content=words)])

    @pytest.mark.cassette
    def test_one():
        with client() as chat:
            raw = chat.chat.completions.with_raw_response.create(**asked("one"))
            assert raw.parse().choices[0].message.content
            print("found", hashlib.sha256(raw.http_response.content).hexdigest())

    @pytest.mark.cassette
    def test_stream():
        with client() as chat:
            said = [one.choices[0].delta.content for one in
                    chat.chat.completions.create(**asked("two", stream=True))]
            assert len(said) > 10
            print("found", "".join(said))
            with chat.chat.completions.with_streaming_response.create(
                    **asked("three", stream=True)) as raw:
                whole = b"".join(raw.iter_bytes())
            assert whole.endswith(b"[DONE]\\n\\n")
            print("found", hashlib.sha256(whole).hexdigest())

    @pytest.mark.cassette
    async def test_several():
        async with openai.AsyncOpenAI(
                base_url="https://api.openai.com:{port}/v1", max_retries=0) as chat:
            for words in ("four", "five", "four"):
                one = await chat.chat.completions.create(**asked(words))
                print("found", one.id, one.choices[0].message.content)
"""
ANTHROPIC = """
    import hashlib, uuid
    import anthropic

    def client():
        return anthropic.Anthropic(
            base_url="https://api.anthropic.com:{port}", max_retries=0)

    def asked(words):
        return dict(model="claude", max_tokens=99, metadata=dict(
            user_id=str(uuid.uuid4())), messages=[dict(role="user", content=words)])

    @pytest.mark.cassette
    def test_one():
        with client() as chat:
            raw = chat.messages.with_raw_response.create(**asked("one"))
            assert raw.parse().content[0].text
            print("found", hashlib.sha256(raw.http_response.content).hexdigest())

    @pytest.mark.cassette
    def test_stream():
        with client() as chat:
            with chat.messages.stream(**asked("two")) as stream:
                said = list(stream.text_stream)
                print("found", stream.get_final_message().id, "".join(said))
            assert len(said) > 10
            with chat.messages.with_streaming_response.create(
                    **asked("three"), stream=True) as raw:
                whole = b"".join(raw.iter_bytes())
            print("found", hashlib.sha256(whole).hexdigest())

    @pytest.mark.cassette
    async def test_several():
        async with anthropic.AsyncAnthropic(
                base_url="https://api.anthropic.com:{port}", max_retries=0) as chat:
            for words in ("four", "five", "four"):
                one = await chat.messages.create(**asked(words))
                print("found", one.id, one.content[0].text)
"""


def serve(answers: Callable[[int, str], dict],
          events: Callable[[int, str], Iterator[bytes]], key: str) -> Callable:
    """An origin of models: its answers differ each time."""
    def script(conn: Connection) -> None:
        while request := conn.read_request():
            fields = {name.lower(): value for name, value in request.fields}
            assert key in fields.get("authorization", "") + fields.get("x-api-key", "")
            asked = json.loads(request.body)
            number = len(conn.origin.requests)
            words = asked["messages"][0]["content"]
            about = (f"request-id: req_{number}\r\nopenai-organization: {ACCOUNT}\r\n"
                     f"anthropic-organization-id: {ACCOUNT}\r\n"
                     f"Set-Cookie: __cf_bm={key}; Secure\r\n")
            if not asked.get("stream"):
                body = json.dumps(answers(number, words), indent=2).encode()
                conn.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                          f"{about}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                continue
            conn.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{about}"
                      "Transfer-Encoding: chunked\r\n\r\n".encode())
            for event in events(number, words):
                conn.send(b"%x\r\n%s\r\n" % (len(event), event))
            conn.send(b"0\r\n\r\n")
    return script


def of_openai(number: int, words: str) -> dict:
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": number,
            "model": "gpt", "choices": [{
                "index": 0, "finish_reason": "stop", "message": {
                    "role": "assistant", "content": f"{words}: grüße {number}"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}


def openai_events(number: int, words: str) -> Iterator[bytes]:
    for n in range(20):
        yield b"data: " + json.dumps({
            "id": f"chatcmpl-{number}", "object": "chat.completion.chunk",
            "created": number, "model": "gpt", "choices": [{
                "index": 0, "finish_reason": None,
                "delta": {"content": f"{words}-ü{n} "}}]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def of_anthropic(number: int, words: str) -> dict:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant",
            "model": "claude", "stop_reason": "end_turn", "stop_sequence": None,
            "content": [{"type": "text", "text": f"{words}: grüße {number}"}],
            "usage": {"input_tokens": 1, "output_tokens": 2}}


def anthropic_events(number: int, words: str) -> Iterator[bytes]:
    def event(kind: str, **more: object) -> bytes:
        data = json.dumps({"type": kind, **more}, ensure_ascii=False)
        return f"event: {kind}\ndata: {data}\n\n".encode()

    yield event("message_start", message={**of_anthropic(number, words), "content": [],
                                          "stop_reason": None})
    yield event("content_block_start", index=0,
                content_block={"type": "text", "text": ""})
    yield event("ping")
    for n in range(20):
        yield event("content_block_delta", index=0,
                    delta={"type": "text_delta", "text": f"{words}-ü{n} "})
    yield event("content_block_stop", index=0)
    yield event("message_delta", usage={"output_tokens": 20},
                delta={"stop_reason": "end_turn", "stop_sequence": None})
    yield event("message_stop")


def test_the_page_has_the_presets():
    assert PRESETS in (ROOT / "docs/recording-in-tests.md").read_text()


@pytest.mark.parametrize(("vendor", "text", "answers", "events"), [
    ("openai", OPENAI, of_openai, openai_events),
    ("anthropic", ANTHROPIC, of_anthropic, anthropic_events)])
def test_a_vendors_client_is_recorded_and_replayed(
        make_origin, tmp_path, vendor, text, answers, events):
    if find_spec(vendor) is None:
        pytest.skip(f"the package {vendor} is not installed")
    name = f"api.{vendor}.com"
    run = Inner(tmp_path, name)
    key = "sk-" + os.urandom(16).hex()
    made = origins().sign(f"DNS:{name}")
    origin = make_origin(over_tls(serve(answers, events, key), made))
    text = text.format(port=origin.port, account=ACCOUNT)
    env = {f"{vendor.upper()}_API_KEY": key}
    first = run.passes(text, **env)
    assert len(first) == 6 and len(origin.requests) == 6
    origin.close()
    assert run.passes(text, **env) == first
    assert run.passes(text, "--cassette-mode=none", **env) == first
    assert len(origin.requests) == 6
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    for path in written:
        content = path.read_bytes()
        assert key.encode() not in content, path
        if not path.name.startswith("test_inner."):      # the test, compiled too
            assert ACCOUNT.encode() not in content, path


def of_github_and_stripe(token: str) -> Callable:
    """Answers with a token of the app's, and with secrets of payments and webhooks."""
    def script(conn: Connection) -> None:
        while conn.read_request():
            number = len(conn.origin.requests)
            body = json.dumps({
                "number": number, "token": f"ghs_{token}", "secret": f"whsec_{token}",
                "client_secret": f"pi_{number}_secret_{token}"}).encode()
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                      f"X-OAuth-Client-Id: {ACCOUNT}\r\nStripe-Account: {ACCOUNT}\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return script


def test_github_and_stripe_are_recorded_and_replayed(make_origin, tmp_path):
    """White space and the order of a form differ in each run, and so do the keys."""
    run = Inner(tmp_path, "api.github.com", "api.stripe.com")
    token = os.urandom(16).hex()
    origin = make_origin(over_tls(of_github_and_stripe(token), origins().sign(
        "DNS:api.github.com", "DNS:api.stripe.com")))
    text = f"""
        import json, uuid

        def ask(host, path, kind, body):
            key = "sk_live_" + os.environ["TOKEN"]
            return json.load(urllib.request.urlopen(urllib.request.Request(
                f"https://{{host}}:{origin.port}{{path}}", body.encode(), {{
                    "Content-Type": kind, "Authorization": f"Bearer {{key}}",
                    "Idempotency-Key": str(uuid.uuid4()),
                    "Stripe-Account": "{ACCOUNT}"}})))["number"]

        @pytest.mark.cassette
        def test_both():
            is_first = os.environ["RUN"] == "1"
            for user in ("a", "b"):
                print("found", ask(
                    "api.github.com", "/app/installations/1/access_tokens",
                    "application/json", json.dumps(
                        {{"permissions": {{"contents": "read"}}, "user": user}},
                        indent=4 if is_first else None, sort_keys=is_first)))
                pairs = ["amount=" + user, "currency=eur"]
                print("found", ask(
                    "api.stripe.com", "/v1/payment_intents",
                    "application/x-www-form-urlencoded",
                    "&".join(pairs if is_first else pairs[::-1])))
    """
    first = run.passes(text, RUN="1", TOKEN=token)
    assert first == [f"found {number}" for number in range(1, 5)]
    origin.close()
    assert run.passes(text, RUN="2", TOKEN="none") == first
    for path in (tmp_path / "cassettes").rglob("*.json"):
        content = path.read_text()
        assert token not in content and ACCOUNT not in content, path
