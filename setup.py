"""The extension table and the build modes; nothing else.

Every .pyx is an extension of its own. CUTTHROUGH_BUILD names the mode:

    release   portable; what a wheel holds (default)
    native    for this machine's processor only
    debug     unoptimised, with symbols and the CUTTHROUGH_DEBUG assertions
    trace     for coverage: line events in the C, which lies beside its .pyx
    asan      address and undefined-behaviour sanitizers, assertions on
    fuzz      counts edges for libFuzzer, traps undefined behaviour; CC must be clang

CFLAGS from the environment come on top of Python's own and, in release mode,
have the last word. Each mode keeps its objects under build/<mode>, so that going
from one to the other compiles only what changed; the C is common to all but trace.
"""

import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
# Undefined behaviour traps: the run-time library that would print it has the same
# coverage hooks as libFuzzer, and the first one loaded would get the counters. -w: for
# clang's warnings (of inline functions that nobody calls) there are the other modes.
FUZZ = ["-fsanitize=fuzzer-no-link,undefined", "-fsanitize-trap=undefined", "-w"]
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
    "fuzz": Mode(["-O1", "-g", *FUZZ], FUZZ, ASSERTIONS),
}

NAME = os.environ.get("CUTTHROUGH_BUILD", "release")
if NAME not in MODES:
    sys.exit(f"CUTTHROUGH_BUILD={NAME}: not one of {', '.join(MODES)}")
MODE = MODES[NAME]
# `cutthrough doctor` reads it there.
FLAGS = " ".join([*MODE.compile, *os.environ.get("CFLAGS", "").split()])
TOLD = {
    "cutthrough/doctor/built.pyx": [
        ("CUTTHROUGH_MODE", f'"{NAME}"'),
        ("CUTTHROUGH_FLAGS", json.dumps(FLAGS)),
    ]
}
CPUS = len(os.sched_getaffinity(0))


def extensions() -> list[Extension]:
    sources = ["proxy.pyx", *map(str, sorted(Path("cutthrough").rglob("*.pyx")))]
    return [
        Extension(
            source.removesuffix(".pyx").replace("/", "."),
            [source],
            extra_compile_args=MODE.compile,
            extra_link_args=MODE.link,
            define_macros=MODE.macros + TOLD.get(source, []),
        )
        for source in sources
        if Path(source).exists()
    ]


class Progress:
    """What `setup.py -q` shows on standard error: one line that changes on a terminal,
    elsewhere a line for each quarter. Without -q the commands themselves are shown."""

    def __init__(self, what: str, total: int, shown: bool) -> None:
        self.what, self.total, self.shown = what, total, shown and total > 0
        self.fd = os.dup(2)                  # while 2 is being read back
        self.live = os.isatty(self.fd)
        self.done, self.quarter = 0, 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        if self.shown:
            self.tell()

    def tell(self) -> None:
        line = f"{self.what} {self.done} of {self.total}"
        os.write(self.fd, (f"\r\x1b[K{line}" if self.live else f"{line}\n").encode())

    def step(self, done: int | None = None) -> None:
        """One more is done, or so many are."""
        with self.lock:
            before, self.done = self.done, self.done + 1 if done is None else done
            quarter = 4 * self.done // max(1, self.total)
            if self.shown and self.done != before and (
                    self.live or quarter != self.quarter):
                self.quarter = quarter
                self.tell()

    def watch(self, count: Callable[[], int]) -> None:
        """Tells in a thread what `count` comes to, until `end`."""
        def look() -> None:
            while not self.over.wait(0.2):
                self.step(min(count(), self.total))

        if self.shown:
            threading.Thread(target=look, daemon=True).start()

    def end(self) -> None:
        self.over.set()
        with self.lock:
            if self.shown and self.live:
                os.write(self.fd, b"\r\x1b[K")
            self.shown = False
            os.close(self.fd)


def c_of(module: Extension) -> Path:
    source = Path(module.sources[0]).with_suffix(".c")
    return source if MODE.beside else "build/c" / source


def count_newer(modules: list[Extension], when: float) -> int:
    """How many have C that was made since."""
    return sum(path.exists() and path.stat().st_mtime >= when
               for path in map(c_of, modules))


def count_stale(modules: list[Extension]) -> int:
    """How many have no C, or C older than their source; those that another's change
    makes stale are told as they come."""
    return sum(not c_of(module).exists() or c_of(module).stat().st_mtime
               < Path(module.sources[0]).stat().st_mtime for module in modules)


def translate(modules: list[Extension], force: bool, quiet: bool = False) -> None:
    """Pyx to C; a warning or a performance hint is an error.

    Cython has no switch that makes a hint one, and prints from several processes:
    what they write to descriptor 2 is read back. The C that they made goes, or the
    next build would find it up to date and pass.
    """
    before = time.time() - 1  # file systems round time stamps down
    build_dir = None if MODE.beside else "build/c"
    force = force or MODE.beside
    progress = Progress("translating to C:", len(modules) if force
                        else count_stale(modules), quiet)
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        progress.watch(lambda: count_newer(modules, before))
        try:
            translated = cythonize(
                modules,
                force=force,
                nthreads=CPUS,
                quiet=quiet,
                build_dir=build_dir,
                compiler_directives={"language_level": 3, **MODE.directives},
            )
        finally:
            progress.end()
            os.dup2(stderr, 2)
            os.close(stderr)
            said.seek(0)
            text = said.read().decode(errors="replace")
            sys.stderr.write(text)
    complaints = re.findall(r"^(?:warning|performance hint): ", text, re.MULTILINE)
    if complaints:
        for module in translated:
            generated = Path(module.sources[0])
            if generated.stat().st_mtime >= before:
                generated.unlink()
        sys.exit(f"{len(complaints)} Cython warnings or performance hints: see above")
    # In place: setuptools has already noted things on these objects.
    sources = {module.name: module.sources for module in translated}
    for module in modules:
        module.sources = sources[module.name]


class Build(build_ext):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CPUS

    def build_extensions(self) -> None:
        # Here rather than in setup(): no other command needs the C.
        self.force = self.force or MODE.beside
        quiet = not self.distribution.verbose
        translate(self.extensions, self.force, quiet)
        # The longest first: at the end no compiler waits for another
        self.extensions.sort(key=lambda one: -Path(one.sources[0]).stat().st_size)
        self.progress = Progress("compiling C:", len(self.extensions), quiet)
        try:
            super().build_extensions()
        finally:
            self.progress.end()

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        self.progress.step()

    def copy_extensions_to_source(self) -> None:
        # distutils copies only what is newer, and another mode's module may be.
        self.force = True
        super().copy_extensions_to_source()


# Cython's worker processes may import this file.
if __name__ == "__main__":
    setup(
        # In pyproject.toml old and new setuptools each refuse what the other wants.
        license="Apache-2.0",
        ext_modules=extensions(),
        cmdclass={"build_ext": Build},
        options={"build": {"build_base": f"build/{NAME}"}},
    )
