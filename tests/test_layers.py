"""The packages and their order, over .py, .pyx and .pxd; docs/architecture.md says why.

No modules import each other in a circle. The tree's other standing rules are held here
too: absolute imports, the length of files, stubs, and nothing of one machine.
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parent.parent
PACKAGE = TREE / "cutthrough"

# The packages that serve connections
DATA = {"config", "outcome", "wire", "net", "http2", "policy", "session"}
# The packages that each package may import beside itself.
MAY_IMPORT: dict[str, set[str]] = {
    "config": set(),
    "bundle": {"config"},
    "outcome": set(),
    "contained": set(),
    "wire": {"outcome"},
    "net": {"contained"},
    "http2": {"wire", "net"},
    "policy": {"config", "outcome", "wire"},
    "session": {"outcome", "wire", "net", "policy"},
    "codings": set(),
    "exchange": {"outcome", "codings"},
    "filters": {"contained", "codings", "exchange"},
    "log": DATA | {"exchange"},
    "process": DATA | {"exchange"},
    "activity": DATA - {"config", "http2"} | {"contained"},
    "tape": DATA - {"config", "http2"} | {"exchange"},
    "storage": {"config", "outcome", "policy", "log", "exchange", "tape"},
    "capture": {"config", "exchange", "tape", "storage"},
    "recording": {"contained", "codings", "exchange", "tape", "storage"},
    "generation": DATA | {"contained", "activity", "bundle", "process", "exchange",
                          "filters", "recording"},
    "verify": DATA | {"contained", "process"},
    "worker": DATA | {"contained", "activity", "log", "process", "exchange", "tape",
                      "recording", "generation", "verify"},
    "admin": DATA | {"process", "exchange", "storage", "capture", "recording"},
    "supervisor": DATA | {"log", "process", "exchange", "tape", "storage", "capture",
                          "bundle", "generation", "admin"},
    "tools": DATA | {"bundle", "ca", "log", "process", "exchange", "storage", "capture",
                     "recording", "generation"},
    "doctor": DATA | {
        "process", "tape", "storage", "recording", "generation", "tools", "embed"},
    "testing": {"filters"},
    "pytest_plugin": {"recording", "tools"},
    "embed": DATA | {"contained", "generation", "process", "worker"},
    "ca": {"config", "policy"},
    "cli": DATA | {
        "ca", "exchange", "log", "process", "generation", "verify", "worker", "admin",
        "supervisor", "tools", "doctor", "embed"},
    "proxy": {"cli"},
}

# Rooms within a package: each may import those before it, and itself. A package's own
# modules are the room "".
ROOMS = {
    "net": ["", "tls", "dns"],
    "exchange": ["", "formats"],
    "session": ["model", "judge", "ways", "transfer", "replay", "stages", ""],
    "recording": ["model", "match", "sessions", "formats", "play", "record"],
}

# Modules of tests that run the tests of another again, with other fixtures.
REPETITIONS = {f"tests/transport/test_{name}.py" for name in (
    "forward", "relay", "tunnel")}

# Cython's import statements, several lines in parentheses included.
FROM = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+c?import[ \t]+(\([^)]*\)|.+)", re.M)
PLAIN = re.compile(r"^[ \t]*c?import[ \t]+(.+)", re.M)
NAME = re.compile(r"(\w[\w.]*)(?:\s+as\s+\w+)?")


def sources() -> list[Path]:
    found = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]
    return sorted([*found, *TREE.glob("proxy.py*")])


def tree_files() -> list[Path]:
    """Every file that belongs to the project: git's list, or all that are not built."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=TREE, capture_output=True, text=True, check=True,
        ).stdout.split("\0")
        paths = [TREE / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        built = {"build", "dist", "__pycache__", "bin", "results"}
        tops = [p for p in TREE.iterdir() if p.name == ".ci" or p.name[0] != "."]
        inside = (p for top in tops for p in (top, *top.rglob("*")))
        paths = [p for p in inside if not built.intersection(p.relative_to(TREE).parts)]
    made = [p for p in paths if p.suffix == ".c" and p.with_suffix(".pyx").exists()]
    return [p for p in paths if p.is_file() and p not in made]


def names_of(names: str) -> list[str]:
    bare = re.sub(r"#.*", "", names).strip("() \n")
    return [m[1] for part in bare.split(",") if (m := NAME.match(part.strip()))]


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports; `from a import b` gives a.b."""
    return tuple(read_imports(path))


def read_imports(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = "." * node.level + (node.module or "")
                yield from (f"{origin}.{alias.name}" for alias in node.names)
        return
    text = re.sub(r'""".*?"""', "", text, flags=re.S)
    for module, names in FROM.findall(text):
        yield from (f"{module}.{name}" for name in names_of(names))
    for names in PLAIN.findall(text):
        yield from names_of(names)


def package_of(module: str) -> str | None:
    """The package of a dotted name; None if it is not ours or is the top itself."""
    parts = module.split(".")
    if parts[0] == "proxy":
        return "proxy"
    if parts[0] != "cutthrough" or len(parts) == 1 or parts[1].startswith("__"):
        return None
    return parts[1]


def package_of_file(path: Path) -> str | None:
    dotted = ".".join(path.relative_to(TREE).with_suffix("").parts)
    return package_of(dotted.removesuffix(".__init__"))


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(TREE)))
def test_imports_run_one_way(path: Path) -> None:
    package = package_of_file(path)
    if package is None:  # __init__ and __main__ stand at the top and see all
        return
    assert package in MAY_IMPORT, f"{package}: not in docs/architecture.md"
    for name in imports(path):
        other = package_of(name)
        if other in MAY_IMPORT and other != package:
            assert other in MAY_IMPORT[package], f"{package} may not import {name}"


def room_of(module: str) -> tuple[str, str]:
    """Its package, and its room in it."""
    parts = module.removeprefix("cutthrough.").split(".")
    rooms = ROOMS.get(parts[0], [""])
    return parts[0], parts[1] if len(parts) > 1 and parts[1] in rooms else ""


def test_rooms_stand_one_above_the_other() -> None:
    wrong = []
    for module, others in import_graph(sources(), TREE).items():
        package, room = room_of(module)
        order = ROOMS.get(package)
        if order is None or module == f"cutthrough.{package}":
            continue
        assert room in order, f"{module}: in no room of {package}"
        wrong += [f"{module} imports {other}" for other in others
                  if room_of(other)[0] == package and other != f"cutthrough.{package}"
                  and order.index(room_of(other)[1]) > order.index(room)]
    assert not wrong


def import_graph(paths: list[Path], top: Path) -> dict[str, set[str]]:
    """The modules below `top`, and which of them each one imports: lazily, for types
    only, or in its .pxd."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        dotted = ".".join(path.relative_to(top).with_suffix("").parts)
        files.setdefault(dotted.removesuffix(".__init__"), []).append(path)
    graph: dict[str, set[str]] = {module: set() for module in files}
    for module, own in files.items():
        for path in own:
            for name in imports(path):
                while name and name not in files:
                    name = name.rpartition(".")[0]
                if name and name != module:
                    graph[module].add(name)
    return graph


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """The first cycle, as its modules in order and the first one again; or nothing."""
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module):], module]
        if module not in done:
            for other in sorted(graph[module]):
                if cycle := follow(other, [*way, module]):
                    return cycle
            done.add(module)
        return []

    for module in sorted(graph):
        if cycle := follow(module, []):
            return cycle
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    cycle = find_cycle(import_graph(sources(), TREE))
    assert not cycle, " imports ".join(cycle)


def test_a_circle_is_found_through_lazy_and_type_only_imports(tmp_path: Path) -> None:
    room = tmp_path / "cutthrough" / "net"
    room.mkdir(parents=True)
    for name, text in {
        "a.py": "def f():\n    from cutthrough.net import b\n",
        "b.pyx": "from cutthrough.net.c cimport x\n",
        "c.py": "if TYPE_CHECKING:\n    import cutthrough.net.a\n",
        "d.py": "from cutthrough.net import a\n",
    }.items():
        (room / name).write_text(text)
    found = find_cycle(import_graph(list(room.iterdir()), tmp_path))
    assert found == [f"cutthrough.net.{name}" for name in "abca"]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(TREE)))
def test_imports_are_absolute(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith(".")]


def test_nothing_imports_proxy() -> None:
    """A second import would wait for ever on the import lock."""
    guilty = []
    for path in tree_files():
        if path.suffix in {".py", ".pyx", ".pxd"} and "proxy" in imports(path):
            guilty.append(path.relative_to(TREE))
    assert not guilty


def test_no_module_of_tests_is_a_library() -> None:
    """What tests share is in tests/support, or in a module of their room."""
    takers = {str(path.relative_to(TREE)) for path in (TREE / "tests").rglob("*.py")
              if any(re.match(r"tests\.(\w+\.)*test_", name) for name in imports(path))}
    assert takers == REPETITIONS


def test_compiled_modules_never_read_config() -> None:
    """Numbers are copied into C fields when an object is made."""
    compiled = [*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]
    assert not [
        (path.name, name)
        for path in compiled
        for name in imports(path)
        if name.startswith("cutthrough.config.config")
    ]


def test_importing_the_package_imports_nothing_of_it() -> None:
    top = ast.parse((PACKAGE / "__init__.py").read_text()).body
    for node in top:
        if isinstance(node, ast.Import):
            assert not any(a.name.startswith("cutthrough") for a in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.module.startswith("cutthrough")


def test_the_reader_of_imports_sees_every_form(tmp_path: Path) -> None:
    cython = tmp_path / "a.pyx"
    cython.write_text(
        "from libc.stdint cimport int64_t, uint8_t\n"
        "from cutthrough.net.relay cimport (  # why\n    Relay, start as go,\n)\n"
        "cimport cutthrough.outcome as o\n"
        "from cutthrough.wire cimport http1\n"
        "def f():\n    import proxy, sys\n"
    )
    assert set(imports(cython)) == {
        "libc.stdint.int64_t", "libc.stdint.uint8_t", "cutthrough.net.relay.Relay",
        "cutthrough.net.relay.start", "cutthrough.outcome", "cutthrough.wire.http1",
        "proxy", "sys",
    }
    python = tmp_path / "b.py"
    python.write_text("from . import x\nfrom cutthrough import net\nimport os.path\n")
    assert set(imports(python)) == {"..x", "cutthrough.net", "os.path"}


def test_what_python_imports_of_the_compiled_modules_has_a_stub() -> None:
    compiled = {
        ".".join(path.relative_to(TREE).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.pyx")
    }
    wanted = {
        module
        for path in PACKAGE.rglob("*.py")
        for name in imports(path)
        for module in (name, name.rpartition(".")[0])
        if module in compiled
    }
    assert not [m for m in wanted if not compiled[m].with_suffix(".pyi").exists()]


def test_no_file_is_over_450_lines() -> None:
    texts = {
        ".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".lua", ".sh", ".md", ".toml",
        ".conf", ".html", "",
    }
    long = []
    for path in tree_files():
        # A changelog grows with every release, and is read from its top.
        others = {"LICENSE", ".coverage", "CHANGELOG.md"}
        if path.suffix in texts and path.name not in others:
            lines = path.read_bytes().count(b"\n")
            if lines > 450:
                long.append(f"{path.relative_to(TREE)}: {lines}")
    assert not long


# With eight parameters or more: interfaces of users and of nghttp2, and TlsServer
WIDE = {"testing.py play", "testing.py play_async", "pytest_plugin.py respond",
        "tools/mcp_listener.py decide_held", "policy/acl.pyx ask",
        "http2/demux.pyx on_header", "http2/demux.pyx on_invalid_header",
        "net/tls/context.pyx __init__"}
FUNCTION = re.compile(r"^ *(?:cdef|cpdef|def|async def)\b[^\n=(]*?(\w+)\(", re.M)
STRINGS = re.compile(r'""".*?"""|"[^"\n]*"|#[^\n]*', re.S)


def parameters(path: Path) -> Iterator[tuple[str, int]]:
    """Functions, and how many parameters each has beside self, keywords included."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                names = [arg.arg for arg in (
                    *given.posonlyargs, *given.args, *given.kwonlyargs,
                    *filter(None, (given.vararg, given.kwarg)))]
                yield node.name, len(set(names) - {"self", "cls"})
        return
    text = STRINGS.sub("", path.read_text())
    for match in FUNCTION.finditer(text):
        depth, count, begun = 1, 0, match.end()
        for at in range(begun, len(text)):
            depth += (text[at] in "([{") - (text[at] in ")]}")
            if depth == 0 or (depth == 1 and text[at] == ","):
                name = text[begun:at].partition("=")[0].split()
                count += bool(name) and name[-1] not in ("self", "cls", "*", "/")
                begun = at + 1
            if depth == 0:
                break
        yield match[1], count


def test_few_functions_have_eight_parameters() -> None:
    """More of them want to be a struct, whose fields have names where it is made."""
    wide = {f"{path.relative_to(PACKAGE)} {name}" for path in sources()
            if path.suffix != ".pxd" and PACKAGE in path.parents
            for name, count in parameters(path) if count >= 8}
    assert wide == WIDE


def test_no_part_of_the_package_is_for_tests() -> None:
    """Classes and functions of seven modules were: tests/doors has such things."""
    found = [path.relative_to(TREE) for path in sources() if re.search(
        r"\bfor (the )?(tests|bench)\b", path.read_text())]
    assert not found


# Assembled, so that this file does not hold them.
OF_ONE_MACHINE = re.compile(
    "|".join(
        [
            *(rf"(?<![\w.])/{d}/\w" for d in ("work", "root", "Users")),
            r"/home/(?!user\b)\w",
            r"\.py" + "env",
            *(r"\b" + r"\.".join(host) for host in (
                ("pypi", "org"), ("pythonhosted", "org"), ("deb", "debian", "org"),
                ("registry", "npmjs", "org"), ("proxy", "golang", "org"),
                ("crates", "io"),
            )),
        ]
    )
)


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    found = []
    for path in tree_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for match in OF_ONE_MACHINE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(TREE)}:{line}: {match[0]}")
    assert not found
