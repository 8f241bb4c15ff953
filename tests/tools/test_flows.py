"""`cutthrough flows` without a proxy: files in and out, and how bodies are shown."""

import json

import pytest

from cutthrough.capture import copies, views
from cutthrough.cli import flows as arguments_flows
from cutthrough.cli import main as cli
from cutthrough.storage.stores import open_reader, open_store
from cutthrough.tools.flow_source import ByDatabase, read_flow
from tests.capture.dumps import dump, state
from tests.capture.flows import row
from tests.support.terminal import on_terminal

ROWS = [
    row(1, response_head="HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
        response_body='{"a":[1]}'),
    row(2, method="POST", request_head="POST / HTTP/1.1\r\nContent-Type: a/b\r\n\r\n",
        request_body=b"\0\xff"),
    row(3, host="b.test", url="http://b.test/"),
]


@pytest.fixture
def database(tmp_path, monkeypatch):
    path = tmp_path / "flows.db"
    store = open_store(str(path), 0, 0, 0)
    store.write(ROWS)
    store.index(10)
    store.close()
    monkeypatch.setenv("CUTTHROUGH_CAPTURE_FILE", str(path))
    return path


@pytest.fixture
def flows(database, capfdbinary):
    """Runs the verb; returns exit status, output and errors."""
    def run(*words, binary=False):
        status = cli.main(["flows", *words])
        out, errors = capfdbinary.readouterr()
        return status, out if binary else out.decode(), errors.decode()
    return run


def verbs_of(database):
    reader = open_reader(str(database))
    try:
        return [one["verb"] for one in reader.reads()]
    finally:
        reader.close()


def test_the_views_are_those_of_the_command_line():
    assert arguments_flows.VIEWS == views.VIEWS
    assert arguments_flows.FORMS == copies.FORMS


def test_a_body_is_shown_by_its_type(flows):
    assert ("Content-Type: application/json\n\n{\n  \"a\": [\n    1\n  ]\n}\n\ntime  "
            in flows("show", "1")[1])
    assert "00000000  00 ff " in flows("show", "2")[1]
    assert '{"a":[1]}' in flows("show", "1", "--view", "text")[1]


def test_the_request_comes_first_and_hex_is_short(flows, database):
    """Forty lines of facts came first, and a picture's hex filled the screen."""
    store = open_store(str(database), 0, 0, 0)
    store.write([row(9, method="PUT", request_body=bytes(range(256)) * 2,
                     request_head="PUT / HTTP/1.1\r\nContent-Type: a/b\r\n\r\n")])
    store.close()
    lines = flows("show", "4")[1].splitlines()
    assert lines[0] == "PUT / HTTP/1.1" and lines[3].startswith("00000000  00 01 02")
    assert lines[11].startswith("… 512 bytes: --view hex shows all")
    assert lines[12:14] == ["", "HTTP/1.1 200 OK"]
    assert lines.index("HTTP/1.1 200 OK") < lines.index(f"{'id':<24}4")
    assert "00000080 " not in "\n".join(lines)
    assert "\n000001f0 " in flows("show", "4", "--view", "hex")[1]


def test_a_terminal_has_no_line_that_is_too_long(database):
    status, output = on_terminal(("flows", "show", "1", "--file", str(database)), 40)
    lines = output.splitlines()
    assert status == 0 and max(map(len, lines)) == 40
    assert [line for line in lines if len(line) == 40 and line.endswith("…")]


def test_a_body_alone_is_its_bytes(flows):
    assert flows("show", "2", "--body", "request", binary=True)[1] == b"\0\xff"
    assert flows("show", "2", "--body", "response")[1] == "hello"


@pytest.mark.parametrize(("charset", "octets"), [
    ("iso-8859-1", b"caf\xe9\r\n"), ("shift_jis", "日本".encode("shift_jis"))])
def test_a_text_alone_is_the_octets_that_came(flows, tmp_path, charset, octets):
    """They became UTF-8."""
    store = open_store(str(tmp_path / "flows.db"), 0, 0, 0)
    store.write([row(4, response_body=octets.decode(charset), response_head=(
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={charset}\r\n\r\n"))])
    store.close()
    assert flows("show", "4", "--body", "response", binary=True)[1] == octets
    source = ByDatabase(str(tmp_path / "flows.db"))
    try:
        assert source.body(4, "response") == octets
        assert read_flow(source, 4)[1].response_body == octets.decode(charset)
    finally:
        source.close()


def test_an_export_is_imported_elsewhere(flows, database, tmp_path):
    out, other = str(tmp_path / "out.har"), str(tmp_path / "other.db")
    assert flows("export", "-o", out)[0] == 0
    assert flows("import", out, "--file", other) == (
        0, f"{out}: 3 imported, 0 were there, 0 refused\n", "")
    assert flows("import", out)[1].endswith("0 imported, 3 were there, 0 refused\n")
    assert flows("export", "--file", other)[1] == flows("export")[1]
    assert verbs_of(other) == ["export", "import"], "a change is logged, too"


def test_files_of_both_kinds_are_imported(flows, tmp_path):
    made = tmp_path / "flows.mitm"
    made.write_bytes(dump(state()))
    assert flows("import", str(made))[0] == 0
    assert "a.test:8080/a?b=c" in flows("list", "~u 8080")[1]


def test_what_is_refused_is_named_and_the_status_is_one(flows, tmp_path):
    bad, mixed = tmp_path / "bad", tmp_path / "mixed"
    bad.write_bytes(b"\x1b[2J")
    mixed.write_bytes(dump(state()) + dump(state(type="tcp\x1b")))
    status, out, errors = flows("import", str(bad), str(mixed))
    assert status == 1
    assert out == f"{mixed}: 1 imported, 0 were there, 1 refused\n"
    assert errors.splitlines() == [
        f"cutthrough: {bad}: is neither an HTTP Archive nor a dump of mitmproxy",
        f"cutthrough: {mixed}: flow 1: is of type 'tcp\\x1b', not http"]


def test_a_file_that_is_not_there_is_named(flows):
    assert flows("import", "/nowhere.har") == (
        1, "", "cutthrough: /nowhere.har: No such file or directory\n")


def test_nothing_of_a_flow_disturbs_a_terminal(flows, tmp_path):
    made = tmp_path / "flows.mitm"
    one = state()
    one["response"]["content"] = "\x1b[2Jé\u202e\U0001f600".encode()
    made.write_bytes(dump(one))
    flows("import", str(made))
    assert "\\u{1b}[2Jé\\u{202e}\U0001f600\n" in flows("show", "4")[1]
    assert json.loads(flows("show", "4", "--json")[1])["response_body"][0] == "\x1b"


def test_flows_are_deleted_by_number_or_filter(flows, database):
    assert flows("delete", "--id", "1", "--id", "9") == (1, "1 deleted\n", "")
    assert flows("delete", "~d", "b.test")[1] == "1 deleted\n"
    assert flows("search", "hello")[1].count("\n") == 2, "the words are gone, too"
    assert flows("delete", "--all")[1] == "1 deleted\n"
    assert verbs_of(database)[0] == "delete"


@pytest.mark.parametrize("words", [(), ("~m", "GET", "--all"), ("--id", "1", "--all")])
def test_a_deletion_names_its_flows_once(flows, words):
    with pytest.raises(SystemExit):
        flows("delete", *words)


def test_a_flow_is_tagged_and_untagged(flows):
    assert flows("tag", "2", "--tag", "odd", "--comment", "see 1") == (0, "", "")
    shown = flows("show", "2")[1]
    assert "tag                     odd\n" in shown and "see 1\n" in shown
    flows("tag", "2", "--tag", "")
    assert json.loads(flows("show", "2", "--json")[1]).get("tag") is None
    assert flows("tag", "9", "--tag", "a") == (
        1, "", "cutthrough: there is no flow 9\n")


def test_a_request_is_copied_as_a_command(flows, database):
    assert flows("copy", "3")[1] == (
        "curl --globoff --path-as-is \\\n  'http://b.test/' \\\n  -H 'Host: a.test' "
        "\\\n  -H 'Accept: */*'\n")
    assert flows("copy", "2", "--as", "fetch")[1].startswith('await fetch("http://')
    assert "content=b'\\x00\\xff'," in flows("copy", "2", "--as", "httpx")[1]
    assert json.loads(flows("copy", "2", "--as", "json")[1]) == {
        "request": {"url": "http://a.test/a?b=c%20d", "method": "POST", "fields": [
            ["Content-Type", "a/b"]], "body": "AP8=", "user": "", "password": ""},
        "left": []}
    status, _, errors = flows("copy", "9")
    assert (status, errors) == (1, "cutthrough: there is no flow 9\n")
    assert verbs_of(database)[-1] == verbs_of(database)[0] == "copy"


def test_two_flows_are_compared(flows, database):
    assert flows("diff", "1", "1")[:2] == (0, "no difference\n")
    status, out, _ = flows("diff", "1", "3")
    lines = out.splitlines()
    assert status == 1 and "+hello" in lines and '-  "a": [' in lines
    assert not any("request" in line for line in lines)
    assert flows("diff", "1", "9")[0] == 2 and verbs_of(database)[0] == "diff"


def test_one_flow_is_exported(flows):
    (one,) = json.loads(flows("export", "--id", "3")[1])["log"]["entries"]
    assert one["request"]["url"] == "http://b.test/"
    assert flows("export", "--id", "9") == (1, "", "cutthrough: there is no flow 9\n")


def test_hosts_and_the_slowest_are_listed(flows, database):
    status, out, _ = flows("hosts")
    assert status == 0 and [line.split() for line in out.splitlines()] == [
        ["FLOWS", "FAILED", "BYTES", "HOST"], ["2", "0", "320", "a.test"],
        ["1", "0", "160", "b.test"]]
    assert json.loads(flows("hosts", "--json", "~d", "b.test")[1]) == {
        "host": "b.test", "count": 1, "failed": 0, "bytes": 160}
    assert flows("hosts", "~d", "none")[:2] == (0, "FLOWS  FAILED  BYTES  HOST\n")
    out = flows("slowest", "--limit", "2", "~dur", ">15ms")[1]
    assert len(out.splitlines()) == 3
    assert verbs_of(database)[:2] == ["slowest", "hosts"]


def test_tags_are_listed_and_selected(flows):
    assert "TAG" not in flows("list")[1]
    flows("tag", "3", "--tag", "odd")
    lines = flows("list")[1].splitlines()
    assert lines[0].split()[-2:] == ["TAG", "URL"]
    assert [line.split()[-2] for line in lines[1:]] == ["odd", "-", "-"]
    assert len(flows("list", "~tag od & ~user ann")[1].splitlines()) == 2
