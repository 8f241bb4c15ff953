"""`cutthrough mcp` imports files of one directory, and exports by pages."""

import os

import pytest

from cutthrough.capture.query import MOST_IMPORT
from cutthrough.cli import main as cli
from cutthrough.storage.stores import open_reader, open_store
from tests.capture.flows import row
from tests.support.archives import archive, entry, request
from tests.support.mcp_tools import READING, WRITING, ask, refusal, served


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "flows.db"
    fill(path, *map(row, range(1, 4)))
    return path


def fill(path, *rows):
    store = open_store(str(path), 0, 0, 0)
    store.write(rows)
    store.close()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "archives"
    (folder / "of today").mkdir(parents=True)
    asked = request(url="https://b.test/", headers=[
        {"name": "Cookie", "value": "s3cret"}])
    (folder / "of today/page.har").write_bytes(archive(entry(), entry(
        request=asked, startedDateTime="2026-03-01T12:01:00Z")))
    return folder


async def test_a_file_of_the_directory_is_imported_once(database, folder):
    """Before, no tool imported."""
    async with served("--db", database, "--allow-writes", "--import-from", folder
                      ) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == READING | WRITING | {"import_flows"}
        assert not tools["import_flows"].annotations.read_only_hint
        found = await ask(client, "import_flows", file="of today/page.har")
        assert (found["imported"], found["known"]) == (2, 0)
        found = await ask(client, "import_flows", file="of today/page.har")
        assert (found["imported"], found["known"]) == (0, 2)
        flows = (await ask(client, "list_flows", filter="~d b.test"))["flows"]
        shown = await ask(client, "show_flow", id=flows[0]["id"])
        assert "Cookie: [redacted]" in shown["request_head"]
    reader = open_reader(str(database))
    assert ("import", "page.har", 2) in [
        (read["verb"], read["what"], read["found"]) for read in reader.reads()]
    reader.close()


async def test_no_other_file_is_read(database, folder, tmp_path):
    """A model may do what captured content tells it: it reaches one directory alone."""
    (tmp_path / "secret").write_bytes(archive(entry()))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "text").write_text("contents of a file")
    (folder / "empty").write_text("")
    os.mkfifo(folder / "pipe")
    with (folder / "long").open("wb") as file:
        file.truncate(MOST_IMPORT + 1)
    async with served("--db", database, "--allow-writes", "--import-from", folder
                      ) as client:
        for name, reason in (
                ("../secret", "not below"), (str(tmp_path / "secret"), "not below"),
                ("link", "not below"), ("of today/../../secret", "not below"),
                ("pipe", "no regular file"), (".", ""), ("nothing", "No such file"),
                ("long", "longer than 64 MiB"), ("text", "neither"),
                ("empty", "neither")):
            said = await refusal(client, "import_flows", file=name)
            assert reason in said and "contents" not in said, (name, said)
        assert len((await ask(client, "list_flows"))["flows"]) == 3


@pytest.mark.parametrize(("words", "reason"), [
    (("--import-from", "."), "needs --allow-writes"),
    (("--allow-writes", "--import-from", "/nowhere"), "is no directory")])
def test_a_directory_without_use_is_refused(database, words, reason, capfd):
    assert cli.main(["mcp", "--db", str(database), *words]) == 2
    said = capfd.readouterr().err
    assert "--import-from" in said and reason in said


async def pages(client, **given):
    """The entries of each page, until there is none."""
    after, found = 0, []
    while after is not None:
        page = await ask(client, "export_har", after=after, **given)
        assert page["log"]["version"] == "1.2" and page["log"]["creator"]
        found.append([one["_flow"] for one in page["log"]["entries"]])
        after = page["next"]
        assert len(found) < 100
    return found


async def test_an_archive_is_exported_by_pages(tmp_path):
    """Before, it had 50 requests at most, and nobody got the others."""
    path = tmp_path / "flows.db"
    fill(path, *(row(n, host="b.test" if n % 40 == 0 else "a.test",
                     kind="tunnel" if n % 3 == 0 else "request",
                     method="CONNECT" if n % 3 == 0 else "GET")
                 for n in range(1, 201)))
    wanted = [n for n in range(1, 201) if n % 3]
    async with served("--db", path) as client:
        found = await pages(client)
        assert [n for page in found for n in page] == wanted
        assert [len(page) for page in found[:2]] == [50, 50]
        found = await pages(client, limit=7)
        assert [n for page in found for n in page] == wanted
        found = await pages(client, filter="~d b.test")
        assert [n for page in found for n in page] == [40, 80, 160, 200]
        found = await ask(client, "export_har", after=200)
        assert found["log"]["entries"] == [] and found["next"] is None


async def test_a_page_has_as_many_entries_as_its_room(tmp_path):
    path = tmp_path / "flows.db"
    fill(path, *(row(n, response_body="x" * 90_000) for n in range(1, 8)))
    async with served("--db", path) as client:
        found = await ask(client, "export_har")
        assert len(found["log"]["entries"]) == 7 and found["next"] is None
        assert found["cut"] == {"text": 7 * 86_000}
        page = await ask(client, "export_har", most=100_000)
        texts = [len(one["response"]["content"]["text"])
                 for one in page["log"]["entries"]]
        assert texts == [90_000, 90_000] and page["next"] == 2 and "cut" not in page
        found = await pages(client, most=100_000)
        assert [n for page in found for n in page] == [*range(1, 8)]
        whole = await ask(client, "export_har", id=3, most=100_000)
        (one,) = whole["log"]["entries"]
        assert len(one["response"]["content"]["text"]) == 90_000
