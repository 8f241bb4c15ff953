"""The extension table and the build modes; nothing else.

Every .pyx is a module of its own, translated by scripts/translation.py. Modules that
need the same libraries are linked into one shared object (`Group`); `cutthrough` finds
them there. CUTTHROUGH_BUILD names the mode:

    release   portable; what a wheel holds (default)
    native    for this machine's processor only
    debug     unoptimised, with symbols and the CUTTHROUGH_DEBUG assertions
    trace     for coverage: line events in the C, which lies beside its .pyx
    asan      address and undefined-behaviour sanitizers, assertions on
    fuzz      counts edges for libFuzzer, traps undefined behaviour; CC must be clang

CFLAGS from the environment are added to Python's own and override the flags of release
mode. Without the headers of OpenSSL 3 a build ends; CUTTHROUGH_WITHOUT_TLS=1 builds
without TLS. Each mode has its objects under build/<mode>, so that a change of the mode
compiles only changed modules. All modes but trace share the generated C.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))
from groups import FIRST, Group, add_tables
from progress import Progress
from translation import translate

SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
# Undefined behaviour traps, because the run-time library that prints it has the same
# coverage hooks as libFuzzer, and the library loaded first would get the counters.
# Nothing is linked: the sanitizer's functions are in the library that the run preloads.
# -w: clang warns of unused inline functions, and the other modes show real warnings.
FUZZ = ["-fsanitize=fuzzer-no-link,address,undefined", "-fsanitize-trap=undefined",
        "-w"]
ASSERTIONS = [("CUTTHROUGH_DEBUG", "1")]
LINE_EVENTS = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]


@dataclass(frozen=True)
class Mode:
    compile: list[str]
    link: list[str] = field(default_factory=list)
    macros: list[tuple[str, str]] = field(default_factory=list)
    directives: dict[str, bool] = field(default_factory=dict)
    beside: bool = False  # Cython's coverage plugin looks for the C next to the .pyx


MODES = {
    # Debian's Python says -O2 -g. Symbols of functions stay, for perf; lines do not.
    "release": Mode([] if os.environ.get("CFLAGS") else ["-O3", "-g0"]),
    "native": Mode(["-O3", "-g0", "-march=native"]),
    "debug": Mode(["-O0", "-g"], macros=ASSERTIONS),
    "trace": Mode(
        ["-O0"], macros=LINE_EVENTS, directives={"linetrace": True}, beside=True
    ),
    "asan": Mode(["-O1", "-g", *SANITIZE], SANITIZE, ASSERTIONS),
    "fuzz": Mode(["-O1", "-g", *FUZZ], macros=ASSERTIONS),
}

NAME = os.environ.get("CUTTHROUGH_BUILD", "release")
if NAME not in MODES:
    sys.exit(f"CUTTHROUGH_BUILD={NAME}: not one of {', '.join(MODES)}")
MODE = MODES[NAME]
# A directory with include/ and lib/ of another OpenSSL, or of AWS-LC; "": the system's.
# Without the variable that of the last build in this mode; of wheels the system's.
LIBSSL_NOTE = Path("build", NAME, "libssl")
LIBSSL = os.environ.get("CUTTHROUGH_LIBSSL", LIBSSL_NOTE.read_text().partition("\n")[0]
                        if LIBSSL_NOTE.exists() and NAME != "release" else "")
# `cutthrough doctor` shows them.
FLAGS = " ".join([*MODE.compile, *os.environ.get("CFLAGS", "").split()])
BUILD_MACROS = {
    "cutthrough/doctor/built.pyx": [
        ("CUTTHROUGH_MODE", f'"{NAME}"'),
        ("CUTTHROUGH_FLAGS", json.dumps(FLAGS)),
        ("CUTTHROUGH_LIBSSL", json.dumps(LIBSSL)),
    ]
}
WITHOUT_TLS = os.environ.get("CUTTHROUGH_WITHOUT_TLS", "") not in ("", "0")
NO_COMPILER = ("no C compiler, or no headers of C: install gcc and libc6-dev (Debian, "
               "Ubuntu), gcc and glibc-devel (Fedora, RHEL)")
NO_TLS = ("no headers of OpenSSL 3: install libssl-dev (Debian, Ubuntu), openssl-devel "
          "(Fedora, RHEL); CUTTHROUGH_WITHOUT_TLS=1 builds without TLS")
# Modules that need libssl; without its headers and if asked to, they are left out.
OF_OPENSSL = {
    "cutthrough/net/tls/authorities.pyx",
    "cutthrough/net/tls/certificates.pyx",
    "cutthrough/net/tls/key_readers.pyx",
    "cutthrough/net/tls/leaves.pyx",
    "cutthrough/net/tls/transport.pyx",
    "cutthrough/net/tls/context.pyx",
    "cutthrough/net/tls/failures.pyx",
    "cutthrough/net/tls/kernel.pyx",
    "cutthrough/net/tls/keys.pyx",
    "cutthrough/net/tls/offer.pyx",
    "cutthrough/net/tls/records.pyx",
    "cutthrough/net/tls/sessions.pyx",
    "cutthrough/net/tls/stream.pyx",
    "cutthrough/net/tls/trial.pyx",
    "cutthrough/net/tls/ulp.pyx",
    "cutthrough/net/tls/wire.pyx",
}
OPENSSL_3 = """
#include <openssl/ssl.h>
#if !defined(OPENSSL_IS_AWSLC) && OPENSSL_VERSION_MAJOR < 3
#error too old
#endif
"""
# Modules that need libnghttp2; without its headers they are left out.
OF_NGHTTP2 = {f"cutthrough/http2/{name}.pyx" for name in (
    "demux", "frames", "outgoing", "outgoing_request", "outgoing_trailers", "stream",
    "transport")}
NGHTTP2 = """
#include <nghttp2/nghttp2.h>
#if NGHTTP2_VERSION_NUM < 0x013200
#error too old
#endif
"""
# Modules that need SQLite's headers; without them Python's sqlite3 inserts rows.
OF_SQLITE = {"cutthrough/storage/sqlite_batch.pyx"}
SQLITE = "#include <sqlite3ext.h>"
# SQLite loads it too, as an extension of its own
ALONE = {*OF_SQLITE, "proxy.pyx"}
# Modules with a C header beside them, which declares what no system's header does.
OF_HEADERS = {"cutthrough/net/sends.pyx": "uring.h",
              "cutthrough/net/uv_loop.pyx": "libuv.h"}
CPUS = len(os.sched_getaffinity(0))
# In the modes with -O3 it is for modules that save a thousandth of a request's
# instructions by it, hold loops over bytes, or run for each captured or recorded
# request. -Og, a quarter less of gcc's time than -O1, is for what runs for a connection
# of a rare kind, a file or a flush; -O0 for a start, a change of the configuration, a
# check or a hand-over. The others have -O1, doctor/built too: it tells if the compiler
# optimises. Measured in docs/decisions/0030-what-a-build-costs.md.
HOT = set("""
net/address net/buffers net/connector net/poller net/relay net/timers
net/tls/records net/tls/stream net/tls/transport net/tls/wire
wire/authority wire/chunks wire/framing wire/hops wire/http1 wire/http2_fields
wire/http2_request wire/rewrite wire/target http2/demux http2/frames http2/outgoing
http2/meter http2/stream http2/transport
session/connection session/route session/model/charge session/model/client
session/model/idle_pool session/transfer/response session/transfer/tunnel
policy/acl policy/auth policy/siphash log/fields log/jsonline log/text
exchange/heads exchange/json_values exchange/scan exchange/search
exchange/user_information
tape/batch tape/end_columns tape/ended tape/observer tape/plain tape/assembly tape/ring
tape/gathered tape/ring_exchange
recording/record/row_encoder session/replay/answer_cache session/replay/replay
session/transfer/delivery session/transfer/filtered_head session/transfer/filtering
session/transfer/responder session/transfer/to_filters storage/sqlite_batch
""".split())
RARE = set("""
log/sinks net/intercepted net/tls/failures net/tls/kernel net/tls/sessions net/tls/ulp
session/model/broken session/stages/associate session/stages/pac session/stages/socks
session/stages/transparent session/transfer/act session/transfer/alerts
session/transfer/intercept session/transfer/origin_alerts session/ways/dials
tape/ring_room wire/socks wire/socks_client
""".split())
COLD = set("""
net/own_addresses net/tls/authorities net/tls/certificates net/tls/context
net/tls/key_readers net/tls/keys net/tls/leaves net/tls/offer net/tls/ticket_keys
net/tls/trial policy/fingerprints policy/remote_usage policy/shared_table policy/tlvs
session/describe session/handover session/handover_parts session/model/entrance
session/model/pinned session/model/prints session/model/standby session/ways/local
session/ways/probe
""".split())
# Functions that Cython would else put into each module: a quarter of gcc's time
SHARED = "cutthrough._cyutility"


@functools.cache
def compiles(text: str) -> bool:
    """Whether the compiler finds the headers that this C wants, none too old."""
    command = [*os.environ.get("CC", "cc").split(), "-fsyntax-only", "-x", "c",
               *([f"-I{LIBSSL}/include"] if LIBSSL else []), "-"]
    try:
        return not subprocess.run(
            command, input=text, text=True, capture_output=True).returncode
    except OSError:
        return False


def libraries_of(source: str) -> dict[str, list[str]]:
    """Return what `Extension` needs to know of them."""
    if source in OF_NGHTTP2:
        return {"libraries": ["nghttp2"]}
    if source in BUILD_MACROS:
        return {"depends": [str(note_libssl())]}
    if source in OF_HEADERS:
        return {"include_dirs": ["cutthrough/net"], "libraries": ["dl"],
                "depends": [f"cutthrough/net/{OF_HEADERS[source]}"]}
    if source not in OF_OPENSSL:
        return {}
    found = {"libraries": ["ssl", "crypto"], "include_dirs": ["cutthrough/net/tls"],
             "depends": [str(note_libssl()), "cutthrough/net/tls/libssl.h"]}
    if LIBSSL:
        found["include_dirs"].append(f"{LIBSSL}/include")
        found["library_dirs"] = found["runtime_library_dirs"] = [f"{LIBSSL}/lib"]
    return found


@functools.cache
def macros_of_mode() -> list[tuple[str, str]]:
    """With gcc also: the code that a module runs when it is imported is not optimised,
    which is a tenth of the compiler's time."""
    if "-O3" in MODE.compile and compiles("#ifdef __clang__\n#error\n#endif"):
        return [*MODE.macros,
                ("CYTHON_SMALL_CODE", '__attribute__((cold, optimize("O0")))')]
    return MODE.macros


def optimisation(source: str) -> list[str]:
    name = source.removeprefix("cutthrough/").removesuffix(".pyx")
    if "-O3" not in MODE.compile or name in HOT:
        return []
    return ["-O0" if name in COLD else "-Og" if name in RARE else "-O1"]


@functools.cache
def note_libssl() -> Path:
    """Return a file that is newer than what was compiled with another libssl: another
    directory, or another library in it."""
    library = Path(LIBSSL, "lib", "libssl.so")
    text = LIBSSL
    if LIBSSL:
        text += f"\n{hashlib.sha256(library.read_bytes()).hexdigest()}"
    if not LIBSSL_NOTE.exists() or LIBSSL_NOTE.read_text() != text:
        LIBSSL_NOTE.parent.mkdir(parents=True, exist_ok=True)
        LIBSSL_NOTE.write_text(text)
    return LIBSSL_NOTE


def modules() -> list[Extension]:
    sources = ["proxy.pyx", *map(str, sorted(Path("cutthrough").rglob("*.pyx")))]
    # The compiler and the loader would take the system's in their place
    for needed in ("include/openssl/ssl.h", "lib/libssl.so") if LIBSSL else ():
        if not Path(LIBSSL, needed).exists():
            sys.exit(f"CUTTHROUGH_LIBSSL: no {Path(LIBSSL, needed)}; `make aws-lc` "
                     "makes it, `make openssl` does without")
    if not compiles(OPENSSL_3):
        if LIBSSL:
            sys.exit(f"CUTTHROUGH_LIBSSL={LIBSSL}: neither OpenSSL 3 nor AWS-LC")
        sources = [source for source in sources if source not in OF_OPENSSL]
    if not compiles(NGHTTP2):
        sys.stderr.write(
            "built without HTTP/2: no headers of nghttp2 1.50 (libnghttp2-dev)\n")
        sources = [source for source in sources if source not in OF_NGHTTP2]
    if not compiles(SQLITE):
        sys.stderr.write(
            "built with slower captures: no headers of SQLite (libsqlite3-dev)\n")
        sources = [source for source in sources if source not in OF_SQLITE]
    shared = Extension(SHARED, [SHARED.replace(".", "/") + ".c"],
                       extra_compile_args=MODE.compile + optimisation(SHARED),
                       extra_link_args=MODE.link, define_macros=macros_of_mode())
    return [shared] + [
        Extension(
            source.removesuffix(".pyx").replace("/", "."),
            [source],
            extra_compile_args=MODE.compile + optimisation(source),
            extra_link_args=MODE.link,
            **libraries_of(source),
            define_macros=macros_of_mode() + BUILD_MACROS.get(source, []),
        )
        for source in sources
        if Path(source).exists()
    ]


def group_of(module: Extension) -> str:
    [source] = module.sources
    if source in ALONE:
        return module.name
    if source in OF_OPENSSL:
        return f"{FIRST}_tls"                # a host may lack these libraries
    return f"{FIRST}_http2" if source in OF_NGHTTP2 else FIRST


def extensions() -> list[Group]:
    members: dict[str, list[Extension]] = {}
    for module in modules():
        members.setdefault(group_of(module), []).append(module)
    groups = [
        Group(name, rows, extra_link_args=MODE.link, **{
            key: list(dict.fromkeys(path for row in rows for path in getattr(row, key)))
            for key in ("libraries", "library_dirs", "runtime_library_dirs")})
        for name, rows in members.items()]
    add_tables(groups, Path("build", NAME, "tables"), define_macros=MODE.macros,
               extra_compile_args=MODE.compile)
    return groups


def modified_at(path: str | Path) -> float:
    return Path(path).stat().st_mtime


class Build(build_ext):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CPUS

    def build_extensions(self) -> None:
        # Not in setup(), because no other command needs the C.
        if not compiles("#include <stdio.h>"):
            sys.exit(NO_COMPILER)
        if not compiles(OPENSSL_3):
            if not WITHOUT_TLS:
                sys.exit(NO_TLS)
            sys.stderr.write("built without TLS, as CUTTHROUGH_WITHOUT_TLS asks\n")
        self.force = self.force or MODE.beside
        quiet = not self.distribution.verbose
        members = [row for group in self.extensions for row in group.members]
        translate(
            [row for row in members if not row.name.endswith(".table")],
            quiet,
            force=self.force,
            build_dir=None if MODE.beside else "build/c",
            # What no process pickles, at a quarter of the time of gcc for 30 modules
            compiler_directives={"language_level": 3, "auto_pickle": False,
                                 **MODE.directives},
            shared_utility_qualified_name=SHARED,
        )
        self.remove_others()
        stale = [(group, row) for group in self.extensions for row in group.members
                 if self.force or self.is_stale(row)]
        # The longest first, so that the last compilers end together
        stale.sort(key=lambda pair: -Path(pair[1].sources[0]).stat().st_size)
        self.progress = Progress("compiling C:", len(stale), quiet)
        try:
            with (tempfile.TemporaryDirectory() as directory,
                  ThreadPoolExecutor(self.parallel) as pool):
                self.read_headers_once([row for _, row in stale], Path(directory), pool)
                for done in [pool.submit(self.compile, *pair) for pair in stale]:
                    done.result()
        finally:
            self.progress.end()
        for group in self.extensions:
            group.extra_objects = [self.object_of(row) for row in group.members]
            group.depends = group.extra_objects
        super().build_extensions()

    def object_of(self, module: Extension) -> str:
        [made] = self.compiler.object_filenames(
            module.sources, output_dir=self.build_temp)
        return str(made)

    def is_stale(self, module: Extension) -> bool:
        made = self.object_of(module)
        return not os.path.exists(made) or any(
            modified_at(path) > modified_at(made)
            for path in [*module.sources, *module.depends])

    def compile(self, group: Group, module: Extension) -> None:
        self.compiler.compile(
            module.sources, output_dir=self.build_temp,
            macros=[*module.define_macros, *group.renamed(module)],
            include_dirs=module.include_dirs, debug=self.debug,
            extra_postargs=module.extra_compile_args, depends=module.depends)
        self.progress.step()

    def remove_others(self) -> None:
        """Removes what was made with other flags, and modules of builds in which each
        was a shared object, because Python would find these first."""
        note = Path(self.build_temp, "flags.json")
        before = json.loads(note.read_text()) if note.exists() else {}
        environment = [os.environ.get(name, "") for name in ("CC", "CFLAGS", "LDFLAGS")]
        flags = {}
        for group in self.extensions:
            flags[self.get_ext_fullpath(group.name)] = repr([
                group.extra_link_args, group.libraries, group.library_dirs,
                [row.name for row in group.members], *environment])
            for row in group.members:
                flags[self.object_of(row)] = repr([
                    row.extra_compile_args, row.define_macros, row.include_dirs,
                    group.renamed(row), *environment])
                if group.has_table:
                    name = self.get_ext_filename(row.name)
                    for path in (name, Path(self.build_lib, name)):
                        Path(path).unlink(missing_ok=True)
        for path in flags:
            if before.get(path) != flags[path]:
                Path(path).unlink(missing_ok=True)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(before | flags))

    def read_headers_once(self, stale: list[Extension], directory: Path,
                          pool: ThreadPoolExecutor) -> None:
        """Compiles Python's headers for modules with the same flags, if they are many:
        to read them for each takes 45 ms of gcc, which is 140 for a small module."""
        if "-O3" not in MODE.compile:
            return
        alike: dict[str, list[Extension]] = {}
        for module in stale:
            flags = module.extra_compile_args, module.define_macros
            alike.setdefault(repr(flags), []).append(module)
        many = [modules for modules in alike.values() if len(modules) >= 16]
        for done in [pool.submit(self.read_headers, modules, directory / str(number))
                     for number, modules in enumerate(many)]:
            done.result()

    def read_headers(self, modules: list[Extension], directory: Path) -> None:
        directory.mkdir()
        header = directory / "first.h"
        header.write_text("#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n")
        arguments = modules[0].extra_compile_args
        macros = [f"-D{name}={value}" for name, value in modules[0].define_macros]
        done = subprocess.run(
            [*self.compiler.compiler_so, *arguments, *macros,
             *(f"-I{path}" for path in self.compiler.include_dirs),
             "-x", "c-header", header, "-o", f"{header}.gch"], capture_output=True)
        for module in modules if not done.returncode else ():
            module.extra_compile_args = [*arguments, "-include", str(header)]

    def copy_extensions_to_source(self) -> None:
        # distutils copies only newer files, and another mode's module may be newer.
        self.force = True
        super().copy_extensions_to_source()


class Modules(build_py):
    def run(self) -> None:
        """Adds the pages of docs/, which --help and messages name."""
        super().run()
        for page in () if self.editable_mode else sorted(Path("docs").rglob("*.md")):
            target = Path(self.build_lib, "cutthrough", page)
            self.mkpath(str(target.parent))
            self.copy_file(str(page), str(target))


# Tests import this file, and so may Cython's worker processes.
if __name__ == "__main__":
    setup(
        # Not in pyproject.toml: old and new setuptools require different syntax there.
        license="Apache-2.0",
        ext_modules=extensions(),
        cmdclass={"build_ext": Build, "build_py": Modules},
        options={"build": {"build_base": f"build/{NAME}"}},
    )
