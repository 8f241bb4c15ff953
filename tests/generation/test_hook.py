"""A decision in Python: one call for all waiting requests, and closed if it fails."""

import asyncio
import sys

import pytest

from cutthrough import Decision, Request
from cutthrough.cli.main import main
from cutthrough.generation.hook import MOST_QUESTIONS, Details, Hook
from cutthrough.generation.operator_code import find_function
from cutthrough.generation.policy_files import load_code
from cutthrough.net.shares import ALL_TAKEN, SHARE_TAKEN
from cutthrough.policy.source import PolicyError
from tests.support.tasks import cancel_others

KEY = b"example.com\x01\xbb"
DETAILS = Details((), "127.0.0.1", "CONNECT")
QUESTION = Request(user="alice", groups=(), client="127.0.0.1", method="CONNECT",
                   own_method="CONNECT",
                   host="example.com", port=443)


async def ask(hook: Hook, times: int = 1, user: bytes = b"alice") -> list:
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(times)]
    for answer in answers:
        hook.ask(user, KEY, DETAILS, answer.set_result)
    return await asyncio.wait_for(asyncio.gather(*answers), 10)


async def test_all_who_wait_get_the_answer_to_one_question():
    asked = []

    async def decide(request):
        asked.append(request)
        await asyncio.sleep(0)
        return Decision(True, ttl=60)

    hook = Hook(decide, 1)
    answers = await ask(hook, 5)
    assert [answer.allow for answer in answers] == [True] * 5
    assert asked == [QUESTION]
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    assert hook.verdicts.get(b"alice", KEY, now_ms).allow


async def fails(request):
    raise KeyError("alice")


async def answers_something_else(request):
    return True


async def names_limits_that_nobody_knows(request):
    return Decision(True, limits="gold")


async def exits(request):
    sys.exit(3)


async def cancels_itself(request):
    raise asyncio.CancelledError


async def takes_too_long(request):
    await asyncio.sleep(60)


async def test_a_question_is_its_own_where_the_client_or_the_method_is_another():
    """They joined the one under way, and shared its answer without a ttl."""
    async def decide(request):
        await asyncio.sleep(0)
        return Decision((request.client, request.method) == ("127.0.0.1", "CONNECT"))

    hook = Hook(decide, 1)
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(4)]
    details = [Details((), client, method) for client in ("127.0.0.1", "127.0.0.2")
             for method in ("CONNECT", "POST")]
    for detail, answer in zip(details, answers, strict=True):
        hook.ask(b"alice", KEY, detail, answer.set_result)
    decided = await asyncio.wait_for(asyncio.gather(*answers), 10)
    assert [one.allow for one in decided] == [True, False, False, False]
    assert hook.tally.asked == 4


@pytest.mark.parametrize("function", [
    fails, answers_something_else, names_limits_that_nobody_knows, exits,
    cancels_itself, takes_too_long])
async def test_a_hook_that_fails_has_refused(function, caplog):
    hook = Hook(function, 0.01)
    assert await ask(hook) == [None]
    assert hook.tally.failures == 1 and len(hook.verdicts) == 0
    assert "the policy hook failed" in caplog.text
    assert ("no answer in time" in caplog.text) == (function is takes_too_long)


async def test_a_question_that_is_cancelled_before_it_begins_is_answered():
    """By code of the operator's, which cancels all tasks: it waited for ever, and so
    did everybody who had the same question later."""
    async def decide(request):
        await asyncio.sleep(0)
        return Decision(True)

    hook = Hook(decide, 20)
    answer = asyncio.get_running_loop().create_future()
    hook.ask(b"alice", KEY, DETAILS, answer.set_result)
    cancel_others()
    await asyncio.wait_for(answer, 10)
    assert [one.allow for one in await ask(hook)] == [True]


async def test_an_exception_without_a_text_is_no_timeout(caplog):
    async def fails_silently(request):
        raise KeyError

    assert await ask(Hook(fails_silently, 60)) == [None]
    assert caplog.messages == ["the policy hook failed (1 so far): KeyError: "]


async def test_failures_do_not_flood_the_log(caplog):
    hook = Hook(fails, 1)
    for _ in range(20):
        await ask(hook)
    assert len(caplog.records) == 5, "the 1st, 2nd, 4th, 8th and 16th"


async def test_questions_under_way_are_bounded():
    hook = Hook(takes_too_long, 60)
    for number in range(MOST_QUESTIONS):
        hook.ask(b"%d" % number, KEY, DETAILS, lambda answer: None)
    assert await ask(hook) == [ALL_TAKEN]
    await hook.close()
    assert hook.tally.stats()["open"] == 0


async def ended(hook: Hook) -> None:
    """Until no function runs."""
    while hook.tally.stats()["open"]:       # noqa: ASYNC110
        await asyncio.sleep(0)


def key_of(number: int) -> bytes:
    return b"n%d.test\x01\xbb" % number


async def test_one_user_has_a_share_of_the_questions():
    """1 056 questions of one user: all other users got 503 while they lasted."""
    hook = Hook(takes_too_long, 60)
    heard: list[object] = []
    for number in range(MOST_QUESTIONS):
        hook.ask(b"alice", key_of(number), DETAILS, heard.append)
    await asyncio.sleep(0)
    assert heard == [SHARE_TAKEN] * (MOST_QUESTIONS // 2)
    assert hook.tally.stats()["open"] == MOST_QUESTIONS // 2
    others: list[object] = []
    hook.ask(b"bob", KEY, DETAILS, others.append)
    await asyncio.sleep(0)
    assert others == [] and hook.tally.asked == MOST_QUESTIONS // 2 + 1
    await hook.close()


async def test_a_question_that_nobody_waits_for_is_cancelled():
    """The questions of clients that had reset stayed until they had their answer."""
    cancelled = []

    async def decide(request):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(request.host)
            raise

    hook = Hook(decide, 60)
    for token in range(3):
        hook.ask(b"alice", key_of(token // 2), DETAILS, pytest.fail, token)
    await asyncio.sleep(0)
    await asyncio.sleep(0)                  # into the function
    hook.abandon(0)
    hook.abandon(0)
    assert hook.tally.stats()["dropped"] == 0, "one more waits for it"
    hook.abandon(1)
    hook.abandon(2)
    hook.ask(b"alice", key_of(9), DETAILS, pytest.fail, 3)
    hook.abandon(3)                         # before its first step
    await ended(hook)
    assert cancelled == ["n0.test", "n1.test"]
    assert hook.tally.stats() == {
        "open": 0, "asked": 2, "failed": 0, "dropped": 3, "refused": 0}


async def test_who_asks_behind_a_dropped_question_asks_anew():
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    asked = []

    async def decide(request):
        asked.append(request)
        return await asyncio.shield(answers[len(asked) - 1])

    hook = Hook(decide, 60)
    hook.ask(b"alice", KEY, DETAILS, pytest.fail, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    hook.abandon(1)
    second = asyncio.get_running_loop().create_future()
    hook.ask(b"alice", KEY, DETAILS, second.set_result, 2)
    answers[1].set_result(Decision(True))
    assert (await asyncio.wait_for(second, 10)).allow
    assert len(asked) == 2


async def test_a_function_that_goes_on_has_its_place_until_its_end():
    """If it takes no cancellation, its cost stays the same."""
    leave = asyncio.Event()

    async def decide(request):
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue

    hook = Hook(decide, 60)
    hook.ask(b"alice", KEY, DETAILS, pytest.fail, 1)
    for _ in range(3):
        await asyncio.sleep(0)
    hook.abandon(1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert hook.tally.stats()["open"] == 1
    leave.set()
    await ended(hook)


async def test_nobody_is_called_after_the_end():
    called = []
    hook = Hook(takes_too_long, 60)
    hook.ask(b"alice", KEY, DETAILS, called.append)
    await asyncio.sleep(0)
    await hook.close()
    assert called == []


@pytest.mark.parametrize("name, reason", [
    ("nothing", "is not module:function"),
    (":f", "is not module:function"),
    ("no_such_module_here:f", "No module named"),
    ("os:no_such_function", "has no attribute"),
    ("os:getcwd", "is not an async function"),
])
def test_a_hook_that_cannot_be_used_is_told_at_the_start(name, reason):
    with pytest.raises(PolicyError, match=reason):
        find_function("policy_hook", name)


@pytest.mark.parametrize(("flag", "name", "reason"), [
    ("--auth-hook", "os:getcwd", "auth_hook: os:getcwd is not an async function"),
    ("--dns-hook", "os:name", "dns_hook: os:name is not a function"),
    ("--activity-hook", "os:getcwd",
     "activity_hook: os:getcwd: has none of on_connect, on_client_tls"),
    ("--activity-hook", "os:nothing", "activity_hook: os:nothing: AttributeError"),
    ("--dns-hook", "nowhere:find", "dns_hook: nowhere:find: No module named 'nowhere'"),
])
def test_check_refuses_other_functions_too(capsys, flag, name, reason):
    assert main(["check", "--user", "a", "--password", "b", flag, name]) == 2
    assert reason in capsys.readouterr().err


def test_a_module_that_fails_on_import_is_told_by_its_reason(tmp_path, monkeypatch):
    (tmp_path / "broken_hook.py").write_text("raise RuntimeError('no database')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PolicyError, match="no database"):
        find_function("policy_hook", "broken_hook:decide")
    assert "broken_hook" not in sys.modules


@pytest.mark.parametrize("file, name", [
    ("exiting_hook.py", "exiting_hook:decide"),
    ("exiting_package/__init__.py", "exiting_package.hook:decide")])
def test_a_module_that_exits_on_import_is_refused(tmp_path, monkeypatch, file, name):
    """SystemExit is no Exception: it ended the program at a reload."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PolicyError, match=r"exits when it is imported \(status 3\)"):
        find_function("policy_hook", name, load_code(name))
    assert name.partition(":")[0] not in sys.modules


def test_code_is_run_anew_where_it_has_changed_and_only_there(tmp_path, monkeypatch):
    file = tmp_path / "changing_hook.py"
    file.write_text("async def decide(request): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "changing_hook:decide"
    code = load_code(name)
    first = find_function("policy_hook", name, code)
    assert find_function("policy_hook", name, load_code(name)) is first
    # Of the same length and within the second: its compiled form would count as fresh
    file.write_text("async def decide(request): return 2\n")
    assert find_function("policy_hook", name, code) is first, "as its generation has it"
    second = find_function("policy_hook", name, load_code(name))
    assert second is not first and asyncio.run(second(QUESTION)) == 2
    file.write_text("async def decide(request): return\n1 / 0\n")
    with pytest.raises(PolicyError, match="division"):
        find_function("policy_hook", name, load_code(name))
    assert sys.modules["changing_hook"].decide is second


def test_a_module_of_a_package_is_run_in_it(tmp_path, monkeypatch):
    (tmp_path / "hook_package").mkdir()
    (tmp_path / "hook_package/__init__.py").write_text("answer = 3\n")
    (tmp_path / "hook_package/hook.py").write_text(
        "from . import answer\nasync def decide(request): return answer\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "hook_package.hook:decide"
    decide = find_function("policy_hook", name, load_code(name))
    assert asyncio.run(decide(QUESTION)) == 3
    assert sys.modules["hook_package"].hook.decide.__module__ == "hook_package.hook"


def test_a_module_that_somebody_else_has_imported_is_theirs(tmp_path, monkeypatch):
    (tmp_path / "shared_hook.py").write_text("async def decide(request): return 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    import shared_hook

    name = "shared_hook:decide"
    assert find_function("policy_hook", name, load_code(name)) is shared_hook.decide


@pytest.mark.parametrize("name", ["no_such_module_here:f", "no.such:f", "os:getcwd",
                                  "itertools:count", "", ":f"])
def test_what_has_no_source_has_no_code(name):
    assert load_code(name) is None


async def ask_as(hook: Hook, *pairs: tuple[str, str]) -> bool:
    answer = asyncio.get_running_loop().create_future()
    hook.ask(b"alice", KEY, DETAILS._replace(fingerprints=pairs),
                 answer.set_result)
    return (await asyncio.wait_for(answer, 10)).allow


async def test_a_decision_is_for_clients_of_the_fingerprints_that_it_read():
    async def decide(request):
        return Decision(request.fingerprints.get("client_ja4") == "t13d", ttl=60)

    hook = Hook(decide, 1)
    known, other = ("client_ja4", "t13d"), ("client_ja4", "t12d")
    assert await ask_as(hook, known)
    assert not await ask_as(hook, other)
    assert not await ask_as(hook)
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    verdicts = [hook.verdicts.get(b"alice", KEY, now_ms, pairs)
                for pairs in ((known,), (other,), (), None)]
    assert [one and one.allow for one in verdicts] == [True, False, False, None]


@pytest.mark.parametrize("read", [
    lambda prints: prints["client_ja4"], len, list, dict, bool,
    lambda prints: "client_ja4" in prints, lambda prints: prints == {}])
async def test_any_look_at_fingerprints_counts(read):
    async def decide(request):
        read(request.fingerprints)
        return Decision(True, ttl=60)

    hook = Hook(decide, 1)
    pair = ("client_ja4", "t13d")
    assert await ask_as(hook, pair)
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    assert hook.verdicts.get(b"alice", KEY, now_ms) is None
    assert hook.verdicts.get(b"alice", KEY, now_ms, (pair,)).allow


async def test_a_hook_that_reads_no_fingerprint_decides_for_all_clients():
    async def decide(request):
        assert repr(request)
        return Decision(True, ttl=60)

    hook = Hook(decide, 1)
    assert await ask_as(hook, ("client_ja4", "t13d"))
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    assert hook.verdicts.get(b"alice", KEY, now_ms).allow
