"""The names in the pages exist, and their examples can be used as they are."""

import argparse
import re
import runpy
import shlex
import shutil
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutthrough.cli.main import main
from cutthrough.cli.verbs import VERBS, make_parser, pages, parse
from cutthrough.config.config import OPTIONS, TABLES
from cutthrough.config.settings import OF_POLICY, variable_name
from cutthrough.outcome import NAMES, TABLE
from cutthrough.policy.limit_tables import KEYS as LIMIT_KEYS
from cutthrough.policy.rules import _RULE
from cutthrough.policy.smokescreen import _SERVICE
from tests.support.certificates import authority, localhost
from tests.support.protos import compile_protos
from tests.support.proxy import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
# Keys of tables, of the configuration's and of a policy's
KEYS = {*_RULE, *LIMIT_KEYS,
        *(key for table in TABLES.values() for key in table.options)}
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
# Key = value, as a file of options or a policy has it
SETTING = re.compile(r"`(?:[\w.]+\.)?(\w+) = ")


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in HEADING.findall(path.read_text())}


def links(page: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Each link within the tree, as it is written, and its file; raises if it leads to
    no file, or to no heading of it. Links are relative to `folder`."""
    for link in LINK.findall(page.read_text()):
        if "://" not in link:
            name, _, anchor = link.partition("#")
            target = folder / name if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
            yield link, target.resolve()


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *(
        page for top in ROOT.glob("[a-z]*") if top.name not in ("build", "dist")
        for page in top.rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_somewhere(page):
    """Texts of changes/ are for CHANGELOG.md."""
    of_changelog = page.parent.name == "changes" and page.name != "README.md"
    assert all(target.is_relative_to(ROOT) for _, target in links(
        page, ROOT if of_changelog else page.parent))


def test_what_other_programs_are_translated_to_exists():
    text = (ROOT / "docs" / "migration.md").read_text()
    said = set(SETTING.findall(text))
    assert len(said) > 30
    assert said <= {*OPTIONS, *KEYS, "blocked"}
    values = {word for table in TABLES.values() for option in table.options.values()
              for word in option.kind.metavar.split("|")}
    ours = {*OPTIONS, *KEYS, *NAMES, *_SERVICE, *values}
    for cell in re.findall(r"^\|.*\| (.*) \|$", text, re.M):
        assert set(re.findall(r"`([a-z]+_[a-z_]+)`", cell)) <= ours


def test_the_tests_that_the_page_of_attacks_names_exist():
    text = (ROOT / "docs" / "attacks.md").read_text()
    written = {name for path in (ROOT / "tests").rglob("test_*.py")
               for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 40 and named <= written
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert files and all((ROOT / file).exists() for file in files)


def test_the_navigation_has_every_page():
    """As the site has it. A page is in the table of one index, once."""
    navigation = runpy.run_path(str(ROOT / "docs" / "conf.py"))["navigation"]
    folder = ROOT / "docs"
    sections = navigation(folder / "README.md")
    assert list(sections) == ["Tutorials", "How to", "Reference", "Explanation"]
    listed = [page for index in folder.rglob("README.md")
              for pages in navigation(index).values() for page in pages]
    assert sorted(listed) == sorted(
        {*folder.rglob("*.md"), *ROOT.glob("*.md")} - {folder / "README.md"})


def test_what_a_site_would_load_from_elsewhere_is_seen():
    """`make site` ends then. A link is followed by a click alone."""
    loaded = runpy.run_path(str(ROOT / "docs" / "conf.py"))["LOADED"]
    for text in ('<script async src="https://cdn.example/x.js">',
                 "<link rel='stylesheet' href='//fonts.example/css'>",
                 "src: url(https://fonts.example/a.woff2)",
                 '@import "https://fonts.example/css";'):
        assert loaded.search(text), text
    for text in ('<a href="https://example.com/">', '<script src="../_static/a.js">',
                 'xmlns="http://www.w3.org/2000/svg"', "url(data:image/svg+xml;a)"):
        assert not loaded.search(text), text


def test_the_map_has_every_module():
    """Of doctor/ the page says that there is one for each kind of check."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    text = text.partition("## Packages\n")[2].partition("\n## ")[0]
    words = {*re.findall(r"\w+", text)}
    packages = re.findall(r"^ {6}(\w+)/ ", text, re.M)
    assert len(packages) == len(set(packages))
    modules = {path.stem for end in ("py", "pyx", "pxd")
               for path in (ROOT / "cutthrough").rglob(f"*.{end}")
               if path.parent.name != "doctor"}
    assert modules - words <= {"__init__", "__main__"}


def test_the_map_names_what_its_files_have():
    """A row sent readers to a function that was somewhere else."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## What is where\n")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if "`" in row]
    assert len(rows) > 15
    for row in rows:
        words = re.findall(r"`([^`]+)`", row)
        files = [word for word in words if "/" in word]
        code = "".join((ROOT / "cutthrough" / one).read_text() for one in files)
        for name in set(words) - {*files, "make docs"}:
            last = name.rpartition(".")[2]
            assert re.search(rf"(def|class|struct) .*\b{last}\b", code), (name, files)


# Examples that can be run

BLOCK = re.compile(r"^( *)```toml\n(.*?)^ *```$", re.M | re.S)
COMMANDS = (
    re.compile(r"`cutthrough ([a-z]+ [^`]+)`"),
    re.compile(r"^ {4,}(?:\$ )?cutthrough ([a-z]+ (?:[^\n]*\\\n)*[^\n]*)$", re.M),
    re.compile(r"[|;] *cutthrough ([a-z]+ [^|;>\n]+)"),
)


def examples() -> dict[str, tuple[str, str]]:
    """Each configuration, and each policy together with the configuration before it;
    tests/test_from.py serves with those of docs/from."""
    found = {}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        before = ""
        blocks = BLOCK.findall(page.read_text())
        for number, (_, text) in enumerate(blocks, 1):
            name, text = f"{page.name}-{number}", textwrap.dedent(text)
            if {"default", *OF_POLICY} & read_top(text):
                found.pop(f"{page.name}-{number - 1}" if before else "", None)
                found[name] = (before, text)
                before = ""
            else:
                found[name] = (text, "")
                before = text
    return found


def read_top(text: str) -> set[str]:
    """The keys of a file; without `groups` if they are keys of parents."""
    table = tomllib.loads(text)
    of_parents = any(isinstance(one, dict) for one in table.get("groups", {}).values())
    return table.keys() - ({"groups"} if of_parents else set())


EXAMPLES = examples()
SHOP = """
syntax = "proto3";
package shop;
message Trace { string id = 1; }
message Item { string created = 1; }
message Order { Trace trace = 1; repeated Item items = 2; }
service Shop { rpc Buy(Order) returns (Order); }
"""


def test_the_pages_have_examples():
    assert {"README.md-7", "policy.md-4", "migration.md-1", "parents.md-2"
            } <= EXAMPLES.keys()


@pytest.mark.parametrize(("config", "policy"), EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_can_be_used_as_pasted(
        tmp_path, monkeypatch, capsys, request, config, policy):
    """docs/tls.md has a user with a certificate's name, which policies refused."""
    made, ca = localhost(), authority()
    admin = ca.sign("DNS:admin.example")
    for name, content in (
            ("c.toml", config), ("p.toml", policy), ("east", "name:password\n"),
            ("on-call-token", "one of a thousand\n"),
            ("admin-token", "made by openssl rand -hex 32\n"),
            ("credentials-key", "made by openssl rand -hex 32, too\n"),
            ("fleet-url", "redis://localhost/0\n"),
            ("ticket-keys", "c" * 106 + "A=\n"),          # base64 of 80 octets
            ("proxy.pem", made.certificate), ("proxy.key", made.key),
            ("admin.pem", admin.certificate), ("admin.key", admin.key),
            *((f"{name}.pem", ca.own.certificate) for name in (
                "ca", "clients", "admins")),
            ("revoked.pem", ca.revoke()),
            ("capture-url", "postgresql://proxy:PASSWORD@localhost/flows\n"),
            ("recording-url", "postgresql://proxy:PASSWORD@localhost/flows\n")):
        file = tmp_path / name
        text = content.read_text() if isinstance(content, Path) else content
        file.write_text(re.sub(r"/(etc|run|var/log)/cutthrough", str(tmp_path), text))
        file.chmod(0o600)
    if "shop.pb" in config:
        compile_protos(tmp_path, {"shop.proto": SHOP}).rename(tmp_path / "shop.pb")
    (tmp_path / "ca").mkdir(mode=0o700)
    for name in ("ca.pem", "ca.key"):
        shutil.copy(ca.folder / name, tmp_path / "ca")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    words = ["check", *(["-c", "c.toml"] if config else []),
             *(["--policy", "p.toml"] if policy else [])]
    (tmp_path / "password").write_text("a password\n")
    # Elsewhere the user is defined in the text
    if not request.node.callspec.id.startswith(("README", "policy", "migration")):
        words += ["--user", "ann", "--password-file", "password"]
    status = main(words)
    assert (status, capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_exists_with_its_flags(page, capsys):
    text = page.read_text()
    for command in (found for form in COMMANDS for found in form.findall(text)):
        line = re.split(r"  #| [<>|] ", command.replace("\\\n", " "))[0]
        words = shlex.split(line)
        if words[0] not in (*VERBS, "help") or "[" in line:
            assert page.name in ("conventions.md", "CHANGELOG.md") or (
                not any(word.startswith("-") for word in words)), command
            continue
        try:
            parse(words)
        except SystemExit as ended:
            said = capsys.readouterr().err
            assert not ended.code or re.search(
                "required|needs a selector|takes METHOD", said), (command, said)


def test_every_verb_is_listed():
    text = (ROOT / "docs" / "conventions.md").read_text()
    assert {*VERBS} <= {*re.findall(r"`(?:cutthrough )?([a-z]+)[ `]", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_target_of_make_exists(page):
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M)
    named = re.findall(r"(?:`|^ {4})make ([a-z0-9-]+)", page.read_text(), re.M)
    assert {*named} <= {*targets}


# Names

@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_metric_exists(page):
    """tests/admin/test_metrics.py compares the table with the listener's answer."""
    table = (ROOT / "docs" / "conventions.md").read_text()
    known = {*re.findall(r"^\| `(cutthrough_\w+)`", table, re.M)}
    named = {*re.findall(r"`(cutthrough_\w+)(?![\w…./])", page.read_text())}
    assert named <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_variable_and_a_setting_exist(page):
    text = page.read_text()
    # Beside the options: of the journal's entries, the build and the benchmark
    known = {*map(variable_name, OPTIONS), "CUTTHROUGH_CONFIG", "CUTTHROUGH_REASON",
             "CUTTHROUGH_BUILD", "CUTTHROUGH_WITHOUT_TLS", "CUTTHROUGH_BENCH_PEERS"}
    named = {*re.findall(r"\b(CUTTHROUGH_\w+)=", text)}
    assert named <= known
    settings = {*re.findall(r"`(\w+) = [\[\"\d]", text)}
    assert settings <= {*OPTIONS, *KEYS, "default", "p"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_path_exists(page):
    """Paths of the code are written from the tree's root, or from the package's."""
    for name in re.findall(r"`([a-z_]+/[\w/.-]+)`", page.read_text()):
        folder = next((one for one in (ROOT, ROOT / "cutthrough")
                       if (one / name.partition("/")[0]).is_dir()), None)
        assert folder is None or name.startswith("build/") or (folder / name).exists()


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_a_page_that_help_names_exists(monkeypatch):
    """Installed packages had no pages, and `docs/decisions/0013` was none."""
    monkeypatch.setenv("COLUMNS", "400")
    assert pages() == ROOT / "docs"
    named = 0
    for parser in parsers(make_parser()):
        text = parser.format_help()
        cited = re.findall(r"docs/(\w[\w./#-]*\w)", text)
        assert bool(cited) == (f"docs/ is {pages()}" in text), parser.prog
        for page, _, anchor in (name.partition("#") for name in cited):
            named += 1
            assert (pages() / page).is_file(), page
            assert not anchor or anchor in anchors(pages() / page)
    assert named > 50


def test_a_page_that_the_code_names_exists():
    for path in (ROOT / "cutthrough").rglob("*.py*"):
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi"):
            for name in re.findall(r"\bdocs/(\w[\w/-]*(?:\.\w+)*)", path.read_text()):
                assert (ROOT / "docs" / name).is_file(), (path, name)


def test_the_page_of_troubles_has_each_reason_under_its_status():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", text, re.M)
    reasons = [(int(status), reason) for status, cell in rows
               for reason in re.findall(r"`(\w+)`", cell)]
    assert len(reasons) > 30
    for status, reason in reasons:
        assert TABLE[NAMES[reason]].status == status, reason


def test_new_reasons_of_the_changelog_exist():
    text = (ROOT / "CHANGELOG.md").read_text()
    told = re.findall(r"New reasons?[^:]*: (.*?)(?:;|\. )", " ".join(text.split()))
    words = {word for one in told for word in re.findall(r"`(\w+)`", one)}
    assert len(words) > 15 and words <= {*NAMES}


# Dependencies

def test_every_dependency_has_a_reason():
    """And nothing else has one: the table had packages that were no longer required."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| ([\w, .-]+) \| .+ \|$", text.split("| run time | why |")[1]
                      .partition("\n\n")[0], re.M)
    told = {name.lower() for row in rows if ", of the system" not in row
            for name in row.split(", ")}
    lists = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = lists["optional-dependencies"]
    required = [*lists["dependencies"], *(
        one for name, extra in extras.items() if name not in ("test", "fuzz")
        for one in extra)]
    assert {re.match(r"[\w.-]+", one)[0].lower() for one in required} == told


def test_the_programs_that_the_tests_want_are_listed():
    script = (ROOT / "scripts" / "bootstrap.sh").read_text()
    part = script.split('if [ "$what" = test ]; then')[1].split("\nfi\n")[0]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    text = text.split("## What the tests need")[1].partition("## Recipes")[0].lower()
    for package, test in re.findall(r"^    need (\S+) (.*)$", part, re.M):
        tool = test.partition("#")[0].split()[-1]
        assert re.search(rf"\b({re.escape(package)}|{re.escape(tool)})\b", text) or (
            package == "netcat-openbsd" and re.search(r"\bnc\b", text)), package
