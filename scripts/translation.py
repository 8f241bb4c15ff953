"""From .pyx to C: every .pxd is read once, then a fork translates each module.

`cythonize` reads a .pxd anew for every module that cimports it, which is two thirds of
its time. Here `cythonize` says only which modules are stale. The context that has read
every .pxd is private to Cython, so it is used with one version only. With another one,
or after an exception, `cythonize` translates.

Against that the C differs in the order of includes, and in what it lacks: `cythonize`
puts the inline functions of every .pxd that a module cimports into its C, and has it
import what these call. Here a module gets those that it calls, directly or not.
"""

import gc
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import Cython
from Cython.Build import Dependencies, cythonize
from Cython.Compiler import Errors, Nodes, Pipeline
from Cython.Compiler.Main import Context, compile_single
from Cython.Compiler.Visitor import TreeVisitor
from progress import Progress
from setuptools import Extension

COMPARED = "3.3.1"              # that of requirements/build.txt
CPUS = len(os.sched_getaffinity(0))
HAS_ERRORS, BROKEN = 1, 2       # exit statuses of a fork


class Task:
    """The arguments with which `cythonize` would translate a stale module."""

    def __init__(self, source: str, c_file: str, fingerprint: Any, quiet: bool,
                 options: Any, *others: Any) -> None:
        self.source, self.c_file, self.options = source, c_file, options
        _raises, self.metadata, self.module, *_ = others


class Uses(TreeVisitor):
    """The functions of C that an inline function names."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.functions: list[Any] = []
        self.visitchildren(function)

    def visit_Node(self, node: Any) -> None:
        entry = getattr(node, "entry", None)
        if entry is not None and entry.is_cfunction:
            self.functions.append(entry)
        self.visitchildren(node)


class Declarations:
    """Every .pxd that modules need, read once into one context of Cython.

    Cython merges each .pxd of its context into the module that it translates. So a fork
    gets those that its module cimports, directly or not, in the order of `cythonize`:
    a .pxd follows those that it cimports itself.
    """

    def __init__(self, tasks: list[Task]) -> None:
        self.context = Context.from_options(tasks[0].options)
        self.needs: dict[Any, list[Any]] = {}      # by scope; in the order of cimports
        self.read: dict[Any, tuple[str, Any]] = {}
        self.reading: list[Any] = []
        find, process = self.context.find_module, self.context.process_pxd

        def process_pxd(source: Any, scope: Any, name: str) -> Any:
            self.needs[scope] = []
            self.reading.append(scope)
            try:
                result = process(source, scope, name)
            finally:
                self.reading.pop()
            self.read[scope] = (name, result[1])
            return result

        def find_module(*args: Any, **keywords: Any) -> Any:
            scope = find(*args, **keywords)
            if self.reading:
                self.needs[self.reading[-1]].append(scope)
            return scope

        self.context.process_pxd, self.context.find_module = process_pxd, find_module
        Errors.reset()
        tree = Dependencies.create_dependency_tree(quiet=True)
        for path in sorted({path for task in tasks
                            for path in tree.all_dependencies(task.source)}):
            if path.endswith(".pxd") and not os.path.isabs(path):
                self.context.find_module(
                    os.path.normpath(path).removesuffix(".pxd").replace("/", "."))
        if Errors.get_errors_count():
            raise ValueError("a .pxd has errors")
        self.find, self.process = find, process
        # Of inline functions; those that belong to a class are in each module
        self.uses: dict[Any, list[Any]] = {}
        for scope, (_, (functions, _)) in self.read.items():
            for function in functions.stats:
                self.uses[function.entry] = Uses(function).functions
            for entry in scope.cfunc_entries:
                if entry.defined_in_pxd or entry.inline_func_in_pxd:
                    entry.used = False       # until the module itself uses it
        Pipeline.inject_pxd_code_stage_factory = lambda context: self.merge

    def merge(self, module: Any) -> Any:
        """Merges every .pxd of the context into a module that has been analysed."""
        pxds = self.context.pxds.values()
        waiting = [function.entry for functions, _ in pxds
                   for function in functions.stats if is_wanted(function.entry, module)]
        wanted = set(waiting)
        while waiting:
            for entry in self.uses.get(waiting.pop(), ()):
                entry.used = True
                if entry not in wanted:
                    wanted.add(entry)
                    waiting.append(entry)
        for functions, scope in pxds:
            module.merge_in(Nodes.StatListNode(functions.pos, stats=[
                function for function in functions.stats if function.entry in wanted
            ]), scope, stage="pxd")
        return module

    def translate(self, task: Task) -> int:
        """Translates in a fork; returns its exit status."""
        context, marked = self.context, set()
        context.pxds.clear()

        def mark(scope: Any) -> None:
            if scope not in marked:
                marked.add(scope)
                for needed in self.needs.get(scope, ()):
                    mark(needed)
                if scope in self.read:
                    name, result = self.read[scope]
                    context.pxds[name] = result

        def find_module(*args: Any, **keywords: Any) -> Any:
            scope = self.find(*args, **keywords)
            mark(scope)
            return scope

        context.process_pxd, context.find_module = self.process, find_module
        options = context.options = task.options
        options.output_file, options.embedded_metadata = task.c_file, task.metadata
        result = compile_single(
            task.source, options, full_module_name=task.module, context=context)
        return HAS_ERRORS if result.num_errors else 0


def is_wanted(entry: Any, module: Any) -> bool:
    """Is the function used in the module itself, exported by it, or a method?"""
    scope = entry.scope
    return entry.used or scope is module.scope or not scope.is_module_scope


def stale(
    modules: list[Extension], **options: Any
) -> tuple[list[Extension], list[Task]]:
    """What `cythonize` returns, and the tasks that it would have done."""
    tasks: list[Task] = []
    originals = Dependencies.cythonize_one, Context.find_pxd_file
    Dependencies.cythonize_one = lambda *args: tasks.append(Task(*args))
    # In this tree and Cython's, not in sys.path too: 2 s in place of 4
    Context.find_pxd_file = partialmethod(originals[1], sys_path=False)
    try:
        return cythonize(modules, nthreads=0, **options), tasks
    finally:
        Dependencies.cythonize_one, Context.find_pxd_file = originals


def translate_forked(tasks: list[Task], step: Callable[[], None]) -> int:
    """Returns the number of modules with errors, which are on standard error."""
    if not tasks:
        return 0
    gc.disable()                # it would visit, and so copy, all pages in each fork
    declarations = Declarations(tasks)
    gc.freeze()
    # The longest first, so that the last end together
    waiting = sorted(tasks, key=lambda task: os.path.getsize(task.source))
    running: dict[int, Task] = {}
    with_errors, broken = 0, []
    while waiting or running:
        while waiting and len(running) < CPUS:
            task = waiting.pop()
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                status = BROKEN
                try:
                    status = declarations.translate(task)
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            running[pid] = task
        pid, status = os.wait()
        if task := running.pop(pid, None):
            step()
            with_errors += status == HAS_ERRORS << 8
            if status not in (0, HAS_ERRORS << 8):
                Path(task.c_file).unlink(missing_ok=True)
                broken.append(task.source)
    gc.unfreeze()
    gc.enable()
    if broken:
        raise ChildProcessError(f"not translated: {', '.join(broken)}")
    return with_errors


def translate_somehow(modules: list[Extension], quiet: bool, options: dict[str, Any]
                      ) -> tuple[list[Extension], int]:
    """Returns what `cythonize` returns, and the number of modules with errors."""
    if Cython.__version__ == COMPARED:
        try:
            translated, tasks = stale(modules, quiet=True, **options)
            progress = Progress("translating to C:", len(tasks), quiet)
            try:
                return translated, translate_forked(tasks, progress.step)
            finally:
                progress.end()
        except Exception:
            traceback.print_exc()
            sys.stderr.write("cythonize translates, because of the exception above\n")
    progress = Progress("translating to C:", len(modules), quiet)
    try:
        return cythonize(modules, nthreads=CPUS, quiet=quiet, **options), 0
    finally:
        progress.end()


def remove_others(build_dir: Path, options: str) -> None:
    """Removes C that was translated with other options."""
    note = build_dir / "options"
    if not note.exists() or note.read_text() != options:
        for file in build_dir.rglob("*.c"):
            file.unlink()
        build_dir.mkdir(parents=True, exist_ok=True)
        note.write_text(options)


def translate(modules: list[Extension], quiet: bool, force: bool,
              build_dir: str | None, **options: Any) -> None:
    """Translates .pyx to C as `cythonize` does; a warning or a hint is an error.

    Cython has no switch for that, and prints from several processes, so their output to
    descriptor 2 is captured and searched. If there is an error, the new C is removed,
    because the next build would find it up to date and pass.
    """
    if build_dir:
        remove_others(Path(build_dir), json.dumps(options))
    options |= {"force": force, "build_dir": build_dir}
    before = time.time() - 1  # file systems round time stamps down
    with tempfile.TemporaryFile() as output:
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            translated, with_errors = translate_somehow(list(modules), quiet, options)
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            output.seek(0)
            text = output.read().decode(errors="replace")
            sys.stderr.write(text)
    complaints = re.findall(r"^(?:warning|performance hint): ", text, re.MULTILINE)
    if complaints:
        for module in translated:
            generated = Path(module.sources[0])
            if generated.exists() and generated.stat().st_mtime >= before:
                generated.unlink()
    if with_errors:
        sys.exit(f"{with_errors} modules have errors: see above")
    if complaints:
        sys.exit(f"{len(complaints)} Cython warnings or performance hints: see above")
    # In place, because setuptools has already set attributes of these objects.
    sources = {module.name: module.sources for module in translated}
    for module in modules:
        module.sources = sources[module.name]
