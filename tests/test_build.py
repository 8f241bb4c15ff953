"""The build: modes, failures, the files of a wheel, files that bootstrap leaves alone.

Each build is of a small tree of its own with this project's setup.py and
pyproject.toml, so that it takes seconds and touches nothing here.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

import cutthrough
from tests.support import compiled
from tests.support.small_tree import build, built, make_tree, mode_of

TREE = Path(__file__).resolve().parent.parent
PYPROJECT = TREE / "pyproject.toml"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

WITH_WARNING = "IF True:  # deprecated\n    x = 1\n"
WITH_HINT = """\
cdef void may_raise(int n) nogil:
    if n:
        with gil:
            raise ValueError

def f():
    with nogil:
        may_raise(0)
"""

# Prints the files that Python compiles when both processes load their modules
COMPILED = """
import builtins, cutthrough
plain, files = builtins.compile, []
def compile(source, file, *args, **named):
    files.append(str(file))
    return plain(source, file, *args, **named)
builtins.compile = compile
import cutthrough.cli.entry, cutthrough.cli.main, cutthrough.supervisor.run
import cutthrough.worker.process as worker
worker.load_data_plane()
print([file for file in files if file.endswith(".py")])
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


def test_each_mode_replaces_the_one_in_place(small: Path) -> None:
    built(small, "native")
    assert mode_of(small) == (False, True, 1)
    assert not list(small.glob("cutthrough/*.c"))
    assert (small / "build/c/cutthrough/room.c").exists()
    built(small, "debug")
    assert mode_of(small) == (True, False, 1)
    again = built(small, "native")
    assert mode_of(small) == (False, True, 1)
    assert "-march=native" not in again, "compiled again although nothing had changed"


def test_modules_of_builds_before_go(small: Path) -> None:
    """Each was a file of its own, which Python would find first."""
    before = small / f"cutthrough/room{SUFFIX}"
    before.write_bytes(b"of another build")
    built(small, "debug")
    assert not before.exists() and mode_of(small) == (True, False, 1)


def test_a_module_knows_its_file_and_a_missing_group_is_said(small: Path) -> None:
    built(small, "debug")
    code = ("import cutthrough.room as room\n"
            "print(room.__file__, room.__spec__.origin, room.__spec__.parent)")
    done = subprocess.run([sys.executable, "-c", code], cwd=small, text=True,
                          capture_output=True, timeout=30, check=True)
    file = str(small / f"cutthrough/_modules{SUFFIX}")
    assert done.stdout.split() == [file, file, "cutthrough"]
    Path(file).unlink()
    done = subprocess.run([sys.executable, "-c", code], cwd=small, text=True,
                          capture_output=True, timeout=30, check=False)
    assert "ModuleNotFoundError: No module named 'cutthrough.room'" in done.stderr


@pytest.mark.slow
def test_a_changed_declaration_compiles_who_reads_it(small: Path) -> None:
    built(small, "debug")
    declaration = small / "cutthrough/number.pxd"
    declaration.write_text("cdef enum:\n    NUMBER = 2\n")
    future = (small / "build/c/cutthrough/room.c").stat().st_mtime + 2
    os.utime(declaration, (future, future))
    said = built(small, "debug")
    assert mode_of(small)[2] == 2
    assert "build/c/proxy.c" not in said


@pytest.mark.slow
def test_flags_of_the_environment_have_the_last_word_in_release(small: Path) -> None:
    said = built(small, "release", "--force", CFLAGS="-O0")
    assert mode_of(small) == (False, False, 1)
    commands = [line for line in said.splitlines() if " -c " in line]
    assert len(commands) == 4       # what the modules share, and the table of them
    for line in commands:
        assert re.findall(r" -O\w", line)[-1] == " -O0"


@pytest.mark.slow
def test_trace_leaves_the_c_beside_its_source(small: Path) -> None:
    said = built(small, "trace")
    assert "CYTHON_TRACE=1" in said
    assert (small / "cutthrough/room.c").exists()


@pytest.mark.slow
def test_a_quiet_build_tells_how_far_it_is(small: Path) -> None:
    """`make serve` printed a hundred lines, and then nothing for most of a minute."""
    def quiet() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore:Support for", "setup.py", "-q", "build_ext",
             "--inplace"], cwd=small, capture_output=True, text=True, timeout=120,
            check=False, env={**os.environ, "CUTTHROUGH_BUILD": "debug"})
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr.splitlines()

    said = quiet()
    assert said[0] == "translating to C: 0 of 2" and said[-1] == "compiling C: 4 of 4"
    assert all(re.fullmatch(r"(translating to|compiling) C: [0-4] of [24]", line)
               for line in said)
    assert quiet() == []
    (small / "cutthrough/other.pyx").write_text(WITH_WARNING)
    with pytest.raises(AssertionError, match=r"warning: cutthrough/other\.pyx"):
        quiet()


WRITTEN, BUILT = 10**9, 10**9 + 10       # seconds of 2001


def set_times(files: Iterable[Path], when: int) -> None:
    for file in files:
        os.utime(file, (when, when))


def translated(tree: Path) -> set[str]:
    """The C that a build writes anew after one that was long ago."""
    set_times((tree / "build").rglob("*"), BUILT)
    built(tree, "debug")
    return {file.name for file in (tree / "build/c").rglob("*.c")
            if file.stat().st_mtime != BUILT}


@pytest.mark.slow
def test_what_a_module_reads_makes_it_stale_and_nothing_else(small: Path) -> None:
    """Its source, its own .pxd, one that it cimports through another, an include."""
    package = small / "cutthrough"
    (package / "far.pxd").write_text("cdef enum:\n    FAR = 1\n")
    (package / "number.pxd").write_text(
        "from cutthrough.far cimport FAR\ncdef enum:\n    NUMBER = FAR\n")
    (package / "own.pxd").write_text("cdef int value\n")
    (package / "part.pxi").write_text("value = 3\n")
    (package / "own.pyx").write_text('include "part.pxi"\n')
    set_times(small.rglob("*"), WRITTEN)
    built(small, "debug")
    assert mode_of(small)[2] == 1
    assert translated(small) == set()
    for changed, stale in (("room.pyx", "room.c"), ("far.pxd", "room.c"),
                           ("own.pxd", "own.c"), ("part.pxi", "own.c")):
        os.utime(package / changed)
        assert translated(small) == {stale}, changed
        set_times([package / changed], WRITTEN)


@pytest.mark.slow
def test_a_change_of_the_table_makes_stale_what_it_is_about(small: Path) -> None:
    """One module's macros: its object. A directive: all C."""
    built(small, "native")
    table = small / "setup.py"
    text = table.read_text().replace(
        "BUILD_MACROS = {", 'BUILD_MACROS = {"cutthrough/room.pyx": ASSERTIONS,')
    table.write_text(text)
    said = built(small, "native")
    assert mode_of(small) == (True, True, 1)
    compiled_files = re.findall(r" -c (\S+)", said)
    assert compiled_files == ["build/c/cutthrough/room.c"]
    assert " -c " not in built(small, "native")
    built(small, "debug")
    table.write_text(text.replace(
        '"language_level": 3', '"language_level": 3, "emit_code_comments": False'))
    assert translated(small) == {"_cyutility.c", "proxy.c", "room.c"}


@pytest.mark.slow
def test_another_cython_translates_by_cythonize(small: Path) -> None:
    source = small / "scripts/translation.py"
    text = source.read_text()
    source.write_text(re.sub('^COMPARED = ".*?"', 'COMPARED = "0"', text, flags=re.M))
    assert "cythonize translates" not in built(small, "debug")
    assert mode_of(small)[2] == 1
    (small / "build/c/cutthrough/room.c").unlink()
    source.write_text(text.replace("Context.from_options(", "Context.no_such_name("))
    assert "cythonize translates, because of the exception" in built(small, "debug")
    assert (small / "build/c/cutthrough/room.c").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["other.pyx", "number.pxd"])
def test_an_error_ends_the_build_and_the_next(small: Path, name: str) -> None:
    (small / "cutthrough" / name).write_text("cdef class:\n")
    for _ in range(2):
        done = build(small, "debug")
        assert done.returncode != 0 and f"cutthrough/{name}:1:" in done.stderr


def test_the_translation_is_for_the_locked_cython() -> None:
    text = (TREE / "scripts/translation.py").read_text()
    version = re.search('^COMPARED = "(.*?)"', text, re.M)[1]
    lock = (TREE / "requirements/build.txt").read_text()
    assert f"\ncython=={version} " in lock


def test_the_image_gets_what_setup_py_imports() -> None:
    names = re.findall(r"^from (\w+) import", (TREE / "setup.py").read_text(), re.M)
    files = [f"scripts/{name}.py" for name in names]
    copied = (TREE / ".dockerignore").read_text().splitlines()
    needed = {f"!{file}" for file in files if (TREE / file).exists()}
    assert needed and needed <= set(copied)


def test_each_module_of_the_tiers_exists_and_is_in_one() -> None:
    table = compiled.import_file("setup_of_tiers", TREE / "setup.py")
    named = [*table.HOT, *table.RARE, *table.COLD]
    assert len(named) == len(set(named))
    for name in named:
        assert (TREE / "cutthrough" / f"{name}.pyx").exists(), name


@pytest.mark.slow
def test_an_unknown_mode_is_refused_by_name(small: Path) -> None:
    done = build(small, "fast")
    assert done.returncode != 0
    assert "CUTTHROUGH_BUILD=fast" in done.stderr


@pytest.mark.slow
def test_a_libssl_that_is_gone_ends_the_build(small: Path) -> None:
    """The compiler and the loader took the system's in its place, for some modules: the
    interpreter crashed."""
    gone = small / "aws-lc"
    done = build(small, "native", CUTTHROUGH_LIBSSL=str(gone))
    assert done.returncode != 0 and f"no {gone}/include/openssl/ssl.h" in done.stderr
    (gone / "include/openssl").mkdir(parents=True)
    (gone / "include/openssl/ssl.h").touch()
    done = build(small, "native", CUTTHROUGH_LIBSSL=str(gone))
    assert done.returncode != 0 and f"no {gone}/lib/libssl.so" in done.stderr
    (small / "build/native").mkdir(parents=True, exist_ok=True)
    (small / "build/native/libssl").write_text(f"{gone}\nhash")    # of the last build
    assert build(small, "native").returncode != 0
    (small / "build/release").mkdir(parents=True, exist_ok=True)
    (small / "build/release/libssl").write_text(f"{gone}\nhash")
    built(small, "release")                  # a wheel has the system's


@pytest.mark.slow
def test_a_build_has_no_tls_only_if_asked_to(small: Path) -> None:
    """Without libssl-dev `pip install .` succeeded, and TLS was missing at run time."""
    header = small / "none/openssl/ssl.h"
    header.parent.mkdir(parents=True)
    header.write_text("#error none")
    without = f"cc -I{small}/none"
    done = build(small, "release", CC=without)
    assert done.returncode != 0 and "install libssl-dev" in done.stderr
    assert "CUTTHROUGH_WITHOUT_TLS=1" in done.stderr
    said = built(small, "release", CC=without, CUTTHROUGH_WITHOUT_TLS="1")
    assert "built without TLS" in said and mode_of(small) == (False, True, 1)
    done = build(small, "release", CC=f"{small}/no-cc")
    assert done.returncode != 0 and "no C compiler" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, complaint",
    [(WITH_WARNING, "warning: "), (WITH_HINT, "performance hint: ")],
    ids=["warning", "hint"],
)
def test_a_complaint_of_cython_fails_this_build_and_the_next(
    small: Path, source: str, complaint: str
) -> None:
    (small / "cutthrough/other.pyx").write_text(source)
    for _ in range(2):
        done = build(small, "debug")
        assert done.returncode != 0
        assert f"{complaint}cutthrough/other.pyx" in done.stderr
    assert not list((small / "cutthrough").glob(f"other*{SUFFIX}"))


@pytest.mark.slow
def test_a_wheel_holds_modules_and_stubs_and_no_source_of_them(small: Path) -> None:
    (small / "docs" / "from").mkdir(parents=True)
    (small / "docs" / "from" / "README.md").write_text("# From others\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index",
         "--no-build-isolation", "-w", "dist", "."],
        cwd=small, capture_output=True, timeout=180, check=True,
        env={**os.environ, "CUTTHROUGH_BUILD": "debug"},
    )
    [wheel] = small.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [entry] = [name for name in names if name.endswith("entry_points.txt")]
        entries = archive.read(entry).decode()
        assert "[console_scripts]\ncutthrough = cutthrough.cli.entry:main" in entries
        assert "[pytest11]\ncutthrough = cutthrough.pytest_plugin" in entries
    assert f"proxy{SUFFIX}" in names
    assert f"cutthrough/_modules{SUFFIX}" in names
    assert f"cutthrough/room{SUFFIX}" not in names
    assert {"cutthrough/room.pyi", "cutthrough/py.typed",
            "cutthrough/docs/from/README.md"} <= set(names)
    assert not [n for n in names if n.endswith((".c", ".pyx", ".pxd"))]
    assert not [n for n in names if n.startswith(("tests/", "bench/"))]


def test_doors_are_stale_after_a_change_of_a_declaration(tmp_path: Path) -> None:
    assert compiled.stale_doors(tmp_path) == compiled.DOORS
    for source in compiled.DOORS:
        compiled.made_of(source, tmp_path).touch()
    assert not compiled.stale_doors(tmp_path)
    os.utime(compiled.made_of(source, tmp_path), (0, 0))
    assert compiled.stale_doors(tmp_path) == [source]


def test_a_build_leaves_the_bytecode_of_what_a_start_loads(tmp_path: Path) -> None:
    """Where Python may write none, each start compiled 200 modules in two processes."""
    [imports] = re.findall(r"^IMPORTS := (.*)$", (TREE / "Makefile").read_text(), re.M)
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", imports], cwd=TREE, env=environ, timeout=120,
                   check=True)
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], cwd=TREE, timeout=120, check=True, text=True,
        env={**environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True)
    assert done.stdout == "[]\n"


def test_make_alone_lists_every_verb() -> None:
    text = (TREE / "Makefile").read_text()
    verbs = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
    listed = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=TREE, capture_output=True, text=True, timeout=30, check=True,
    ).stdout
    assert {line.split()[1] for line in listed.splitlines()} == verbs


def test_bootstrap_needs_no_network_when_nothing_is_missing(tmp_path: Path) -> None:
    """Run with an apt-get, and a proxy for pip, that reach no server."""
    trap = tmp_path / "apt-get"
    trap.write_text("#!/bin/sh\necho called >&2\nexit 9\n")
    trap.chmod(0o755)
    shutil.copytree(TREE / "scripts", tmp_path / "tree/scripts")
    shutil.copytree(TREE / "requirements", tmp_path / "tree/requirements")
    (tmp_path / "tree/.venv").symlink_to(TREE / ".venv")
    ready = TREE / ".venv/ready.test"
    lock = TREE / "requirements/test.txt"
    if not ready.exists() or ready.stat().st_mtime < lock.stat().st_mtime:
        pytest.skip("not the .venv that bootstrap made for these requirements")
    stamps = {s: s.stat().st_mtime_ns for s in (TREE / ".venv").glob("ready.*")}
    launcher = (TREE / ".venv/bin/cutthrough").stat().st_ino
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        ["scripts/bootstrap.sh", "test"],
        cwd=tmp_path / "tree", capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "",
             "https_proxy": nowhere, "http_proxy": nowhere},
    )
    for stamp, when in stamps.items():
        os.utime(stamp, ns=(when, when))
    assert done.returncode == 0, done.stderr
    assert "called" not in done.stderr
    assert "installing" not in done.stderr
    assert (TREE / ".venv/bin/cutthrough").stat().st_ino == launcher, "written anew"


def test_the_launcher_runs_the_tree_that_its_venv_lies_in(tmp_path: Path) -> None:
    """`make serve` left no `cutthrough`; and a .venv may be a link that trees share."""
    # Another's environment (a wheel's, a distribution's) has no launcher of ours
    if not (TREE / ".venv/ready.run").exists():
        pytest.skip("not a .venv that bootstrap made")
    launcher = TREE / ".venv/bin/cutthrough"
    done = subprocess.run([launcher, "version"], cwd="/", capture_output=True,
                          text=True, timeout=30, check=True)
    assert done.stdout == f"cutthrough {cutthrough.__version__}\n"

    tree, elsewhere = tmp_path / "a tree", tmp_path / "elsewhere"
    for place, word in ((tree, "tree"), (elsewhere, "here")):
        (place / "cutthrough").mkdir(parents=True)
        (place / "cutthrough/__main__.py").write_text(
            f"import sys; print({word!r}, sys.argv[1:])")
    (tree / ".venv").symlink_to(TREE / ".venv")
    (elsewhere / "link").symlink_to(tree / ".venv/bin/cutthrough")
    for command in (tree / ".venv/bin/cutthrough", "./link"):
        done = subprocess.run([command, "a b", "c"], cwd=elsewhere, capture_output=True,
                              text=True, timeout=30, check=True)
        assert done.stdout == "tree ['a b', 'c']\n"
