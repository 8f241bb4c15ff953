"""Sessions in a real PostgreSQL: the recordings of one host are replayed by all."""


import psutil
import pytest

from tests.support.origin import answer
from tests.support.postgres import PASSWORD
from tests.support.postgres import postgres as postgres
from tests.support.postgres import server as server
from tests.support.postgres import url_file as url_file
from tests.support.shared_recordings import BEARER
from tests.support.shared_recordings import ask as ask
from tests.support.shared_recordings import start as start
from tests.support.wait import takes_less, wait_until

pytestmark = pytest.mark.any_loop

REPLY = (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: id=s3cret-cookie\r\n"
         b"\r\nhello")


def replays(client, url, body=b"hello"):
    """Once it does: a copy comes some time later."""
    wait_until(lambda: (reply := client.get(url)).status == 200 and reply.body == body,
               lambda: str(client.get(url).body))


def misses(client, url):
    wait_until(lambda: client.get(url).status == 502, lambda: str(client.get(url)))


def test_what_one_host_records_another_replays(start, ask, make_origin, dial):
    origin = make_origin(answer(REPLY))
    first, second = (start("a", config="workers = 2\n"),
                     start("b", "replay", "workers = 2\n"))
    urls = [origin.url(f"/zebra{n}x") for n in range(20)]
    clients = [dial(first.proxy), dial(first.proxy)]
    for n, url in enumerate(urls):
        assert clients[n % 2].get(url).status == 200
    wait_until(lambda: len(ask()) == 20, first.proxy.stderr)
    assert {url for url, in ask()} == {*urls}
    origin.close()
    client = dial(second.proxy)
    for url in urls:
        replays(client, url)
    lines = second.proxy.wait_log(20)
    assert {line["reason"] for line in lines} <= {"replayed", "recording_missed"}
    # Its operators, and operators of the host that recorded, see the same
    for host in (first, second):
        listed = host.run("recordings", "list", "default")
        assert {line.split("\t")[-1] for line in listed.stdout.splitlines()} == {*urls}
        (found,) = host.get("/sessions")["sessions"]
        assert (found["name"], found["recordings"]) == ("default", 20)
        assert found["bytes"] > 1000
        page = host.get("/sessions/default?search=zebra7x")["recordings"]
        assert [one["url"] for one in page] == [origin.url("/zebra7x")]
    # How often each was replayed is the sum of all hosts
    wait_until(lambda: all(hits for hits, in ask("hits")), lambda: str(ask("hits")))
    number = page[0]["number"]
    assert first.run("recordings", "delete", "default", "--id",
                     str(number)).returncode == 0
    misses(client, origin.url("/zebra7x"))
    replays(client, origin.url("/zebra8x"))
    assert first.run("recordings", "delete", "default").returncode == 0
    misses(client, origin.url("/zebra8x"))


def test_an_import_and_a_switch_reach_the_other_hosts(
        start, make_origin, dial, tmp_path):
    origin = make_origin(answer(REPLY))
    first, second = start("a"), start("b", "replay")
    assert dial(first.proxy).get(origin.url("/one")).status == 200
    client = dial(second.proxy)
    replays(client, origin.url("/one"))
    assert first.run("recordings", "export", "default",
                     str(tmp_path / "out")).returncode == 0
    (file,) = (tmp_path / "out").glob("GET-*.json")
    file.write_text(file.read_text().replace("hello", "HELLO"))
    done = first.run("recordings", "import", "other", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert second.run("mode", "replay", "--session", "other").returncode == 0
    replays(client, origin.url("/one"), b"HELLO")
    assert second.run("mode", "replay", "--session", "").returncode == 0
    replays(client, origin.url("/one"))


def test_requests_go_on_while_the_server_is_away(
        start, ask, postgres, make_origin, dial):
    """Recordings made meanwhile come later, and copies are replayed."""
    origin = make_origin(answer(REPLY))
    first, second = start("a"), start("b", "replay")
    client, other = dial(first.proxy), dial(second.proxy)
    assert client.get(origin.url("/before")).status == 200
    replays(other, origin.url("/before"))
    postgres.kill()
    names = ["before"]

    def request() -> None:
        assert client.get(origin.url("/while")).status == 200
        names.append("while")
    request()
    first.told("recordings cannot be written: postgresql://")
    takes_less(0.5, request, "a request")       # on a busy machine it takes several
    second.told("what is in the directory is replayed")
    assert other.get(origin.url("/before")).body == b"hello"
    assert "postgresql://" in first.run("recordings", "list").stderr
    status = first.operator().ask("GET", "/sessions", **BEARER)[0]
    assert status == 503
    postgres.start()
    first.told("recordings are written again")
    second.told("sessions of the database are copied again")
    replays(other, origin.url("/while"))
    wait_until(lambda: len(ask()) >= len(names), first.proxy.stderr)
    assert [url.rpartition("/")[2] for url, in ask()] == names
    assert first.proxy.stderr().count("cannot be written") == 1, "once"
    assert first.counted("unwritten") == 0


def test_what_has_no_room_while_the_server_is_away_is_counted(
        start, ask, postgres, make_origin, dial):
    postgres.kill()
    origin = make_origin(answer(REPLY))
    host = start()
    client = dial(host.proxy)
    data = b"x" * 3_000_000
    for n in range(14):
        assert client.ask("POST", origin.url(f"/{n}"), f"Content-Length: {len(data)}",
                          body=data).status == 200
    wait_until(lambda: host.counted("unwritten") >= 3, host.proxy.stderr)
    lost = host.counted("unwritten")
    postgres.start()
    host.told("recordings are written again")
    assert client.get(origin.url("/after")).status == 200
    wait_until(lambda: len(ask()) == 15 - lost, lambda: f"{len(ask())}, {lost} lost")
    assert ask()[0][0].endswith("/0") and ask()[-1][0].endswith("/after")


def test_what_waits_for_the_server_is_of_the_session_that_was_in_force(
        start, ask, postgres, make_origin, dial):
    postgres.kill()
    origin = make_origin(answer(REPLY))
    host = start()
    client = dial(host.proxy)
    for name in ("one", "two"):
        assert host.run("mode", "record", "--session", name).returncode == 0
        host.told(f"mode record, session {name}\n")
        assert client.get(origin.url(f"/{name}")).status == 200
        host.told("cannot be written")
        # The writer has it, and reads the mode's file for the next one
        wait_until(lambda: host.operator().ask(
            "POST", "/settle", **BEARER)[0] == 200, host.proxy.stderr)
    postgres.start()
    wait_until(lambda: len(ask()) == 2, host.proxy.stderr)
    for name in ("one", "two"):
        listed = host.run("recordings", "list", name).stdout.splitlines()
        assert [line.split("\t")[-1] for line in listed] == [origin.url(f"/{name}")]


def test_what_is_recorded_at_the_end_is_not_lost(start, ask, make_origin, dial):
    origin = make_origin(answer(REPLY))
    host = start(config="workers = 2\n")
    client = dial(host.proxy)
    for n in range(50):
        assert client.get(origin.url(f"/{n}")).status == 200
    client.close()
    host.proxy.stop()
    assert len(ask()) == 50


def test_a_server_that_does_not_answer_is_left_at_the_end(
        start, postgres, make_origin, dial):
    origin = make_origin(answer(REPLY))
    host = start()
    client = dial(host.proxy)
    assert client.get(origin.url("/before")).status == 200
    postgres.pause()
    assert client.get(origin.url("/while")).status == 200
    takes_less(0.5, lambda: client.get(origin.url("/while")), "a request")
    client.close()
    host.proxy.stop()
    assert PASSWORD not in host.proxy.stderr()


def test_a_writer_that_is_killed_is_replaced(start, ask, make_origin, dial):
    origin = make_origin(answer(REPLY))
    host = start()
    client = dial(host.proxy)
    assert client.get(origin.url("/before")).status == 200
    wait_until(lambda: len(ask()) == 1, host.proxy.stderr)
    (writer,) = [one for one in host.proxy.workers()
                 if "cutthrough.recording.record.writer" in one.cmdline()]
    writer.kill()
    assert client.get(origin.url("/after")).status == 200
    wait_until(lambda: len(ask()) == 2, host.proxy.stderr)


def test_a_host_with_another_key_says_so(start, make_origin, dial, tmp_path):
    origin = make_origin(answer(REPLY))
    first = start("a")
    client = dial(first.proxy)
    assert client.get(origin.url("/")).status == 200
    wait_until(lambda: first.run("recordings", "list").stdout == "default\t1\n",
               first.proxy.stderr)
    (tmp_path / "b").mkdir(mode=0o700)
    (tmp_path / "b" / "key").write_bytes(b"o" * 32)
    (tmp_path / "b" / "key").chmod(0o600)
    second = start("b", "replay")
    second.told("have been made with another key: copy key of recording_directory")
    assert dial(second.proxy).get(origin.url("/")).status == 502


def test_neither_secrets_nor_the_password_are_anywhere(
        start, ask, postgres, make_origin, dial, url_file, tmp_path):
    """R37, R59: in the database, in the directories, and in the output of proxies."""
    origin = make_origin(answer(REPLY))
    hosts = [start("a", config='recording_redact_query = ["key"]\n'
                               'recording_redact_json = ["$.token"]\n', executed=True),
             start("b", "replay", executed=True)]
    body = b'{"token": "s3cret-json"}'
    reply = dial(hosts[0].proxy).ask(
        "POST", origin.url("/a?key=s3cret-query"), f"Content-Length: {len(body)}",
        "Content-Type: application/json", "Authorization: Bearer s3cret-bearer",
        body=body)
    assert reply.status == 200
    wait_until(ask, hosts[0].proxy.stderr)
    copies = [host.directory / "default.session" for host in hosts]
    wait_until(lambda: all(path.exists() for path in copies), hosts[1].proxy.stderr)
    url = url_file.read_text().strip()
    kept = postgres.dump(url) + b"".join(data for data, in ask("data"))
    for host in hosts:
        kept += b"".join(path.read_bytes() for path in host.directory.iterdir())
        assert b"k" * 32 not in postgres.dump(url), "the hashes' key"
    assert b"[redacted:" in kept
    assert b"s3cret" not in kept
    client = dial(hosts[1].proxy)
    again = client.ask(
        "POST", origin.url("/a?key=s3cret-query"), f"Content-Length: {len(body)}",
        "Content-Type: application/json", body=body)
    assert (again.status, again.body) == (200, b"hello"), "found by its hashes"
    postgres.kill()
    hosts[1].told("what is in the directory is replayed")
    seen = []
    for host in hosts:
        seen += [host.proxy.stderr(), host.operator().ask("GET", "/metrics")[1],
                 host.operator().ask("GET", "/config", **BEARER)[1]]
        for one in [psutil.Process(host.proxy.process.pid), *host.proxy.workers()]:
            seen += [*one.cmdline(), *one.environ().values()]
    done = hosts[0].run("recordings", "list")
    seen += [done.stdout, done.stderr]
    assert PASSWORD not in "\n".join(seen)
