"""docs/config.md agrees with the definition of the options."""

import re
import subprocess
import sys

import pytest

import cutthrough
from cutthrough.config.config import DEFAULTS, OPTIONS, SECRETS, TABLES
from cutthrough.config.options import Options
from cutthrough.config.settings import flag_name, variable_name
from cutthrough.tools.config_docs import PARAMETERS, render, render_types
from tests.support.proxy import ROOT, clean_environment

PAGE = ROOT / "docs" / "config.md"
ALL_ROWS = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in PAGE.read_text().splitlines() if line.startswith("| `")]
ROWS = {row[0].strip("`"): row for row in ALL_ROWS if len(row) == 6}
ROWS_OF_TABLES = [row for row in ALL_ROWS if len(row) == 4]


def test_the_committed_page_is_up_to_date():
    assert PAGE.read_text() == render(), "`make docs`, and commit docs/config.md"


def test_the_types_of_the_options_are_up_to_date():
    text = (ROOT / "cutthrough/config/options.py").read_text()
    assert text == render_types(), "`make docs`, and commit config/options.py"


@pytest.mark.parametrize("name", OPTIONS)
def test_serve_takes_every_option_that_is_typed(name):
    if name not in Options.__annotations__:
        assert OPTIONS[name].of_program or name in PARAMETERS
    elif name not in SECRETS.values():
        options = {name: DEFAULTS[name], "user": "u", "password": "p"}
        assert isinstance(cutthrough.serve(**options), cutthrough.Embedded)


def test_the_verb_prints_it():
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "config", "--markdown"], cwd=ROOT,
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, render(), "")


def test_every_option_has_a_row_with_its_three_names():
    assert list(ROWS) == list(OPTIONS)
    for name, (key, flag, variable, takes, default, reload) in ROWS.items():
        assert (key, flag, variable) == (
            f"`{name}`", f"`{flag_name(name)}`", f"`{variable_name(name)}`")
        assert OPTIONS[name].help.replace("|", r"\|") in takes
        assert default
        assert reload == ("swapped" if OPTIONS[name].swapped else "new workers")


def test_every_key_of_a_table_has_a_row():
    keys = [(f"`{key}`", option) for table in TABLES.values()
            for key, option in table.options.items() if not option.file]
    for (name, option), (key, takes, default, reload) in zip(
            keys, ROWS_OF_TABLES, strict=True):
        assert key == name and option.help.replace("|", r"\|") in takes and default
        assert reload == ("swapped" if option.swapped else "new workers")


def test_every_option_stands_in_a_section_of_its_own_title():
    sections = [option.section for option in OPTIONS.values() if option.section]
    assert next(iter(OPTIONS.values())).section
    assert len(set(sections)) == len(sections)


def test_the_file_of_every_secret_is_an_option():
    assert {option.file for option in OPTIONS.values()} - {""} <= OPTIONS.keys()


def test_a_type_is_said_with_its_unit_and_bounds():
    for name, text in (
        ("head_timeout", "time from 1ms to 720h: "),
        ("max_head", "size from 512B to 256KiB: "),
        ("workers", "`auto` or number from 1 to 1024: "),
        ("connect_ports", "`auto` or `any` or list of number from 1 to 65535: "),
        ("splice", "true or false: "),
        ("resolvers", "list of `IP`: "),
        ("password", "`TEXT`; secret: "),
    ):
        assert ROWS[name][3].startswith(text), ROWS[name][3]
