"""The command line: `cutthrough serve | check | config | explain …`.

Exit status: 0 after a clean stop, 2 if the configuration cannot be used, else 1
(`explain`: if a request is refused or a verdict changes; `doctor`: if a check fails).
Errors are printed on standard error, one line each.
"""

import argparse
import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cutthrough
from cutthrough.cli.held import HELD
from cutthrough.cli.standard import fill_standard, heed_children
from cutthrough.cli.verbs import VERBS, parse, version
from cutthrough.config.bundles import BundleSource, check_source, current_of
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import describe_error, stop_waiting
from cutthrough.config.mistake import Mistake, noting, raise_all, show_all
from cutthrough.config.settings import (
    Setting,
    Settings,
    add_bundle,
    build,
    gather,
    render,
)
from cutthrough.config.values import show_address
from cutthrough.exchange.visible import Shown
from cutthrough.policy.source import Policy

# `import proxy` forwards requests in origin form to the web server of this machine by
# default, so that the usual benchmark command works without flags.
DEMONSTRATION_ORIGIN = "http://127.0.0.1:80"

# Of a terminal: SGR codes (ECMA-48)
BOLD, RED = "1", "31"


class Sources:
    """The sources of this command line's options; each reload reads them again.

    `origin` is the default of that option, unless there are `origins`. `listen` has the
    addresses that the service manager has opened: they replace the option. If a
    row of `listeners` has the same address, it describes the listener. `on_bundle` is
    called before a bundle's file is read.
    """

    def __init__(self, args: argparse.Namespace, origin: str = "") -> None:
        self._args = args
        self._origin = origin
        self.listen: tuple[tuple[str, int], ...] = ()
        self.on_bundle: Callable[[BundleSource], object] | None = None
        self._ignored: Setting | None = None     # `listen`, of which a line was logged
        self._via = ""
        self.last: Settings = {}             # the last result of `settings`

    @property
    def file(self) -> str | None:
        return self._args.config_file or os.environ.get("CUTTHROUGH_CONFIG") or None

    def settings(self, mistakes: list[Mistake] | None = None) -> Settings:
        """Raises ConfigError, or appends the mistakes to `mistakes`."""
        settings = self.last = gather(
            vars(self._args), os.environ, self.file, self._reads_secrets, mistakes)
        if settings["bundle_url"].value:
            errors: list[Mistake] = []
            with noting(errors):
                self._add_bundle(settings, errors)
            if mistakes is None:
                raise_all(errors)
            else:
                mistakes += errors
        if self._origin and settings["origin"].source == "default" and (
                not settings["origins"].value):
            settings["origin"] = settings["origin"]._replace(value=self._origin)
        if self.listen:
            self._tell_ignored(settings["listen"])
            rows = [listener.address for listener in settings["listeners"].value]
            settings["listen"] = Setting(
                tuple(address for address in self.listen if address not in rows),
                "LISTEN_FDS", "listen")
        self.last = settings
        return settings

    @property
    def _reads_secrets(self) -> bool:
        return not getattr(self._args, "without_secrets", False)

    def _add_bundle(self, settings: Settings, mistakes: list[Mistake]) -> None:
        source = BundleSource(*(
            settings[f"bundle_{name}"].value for name in BundleSource._fields))
        raise_all([*check_source(source)])
        if self.on_bundle is not None:
            self.on_bundle(source)
        mistakes += add_bundle(
            settings, current_of(source.cache), self._reads_secrets)

    def _tell_ignored(self, setting: Setting) -> None:
        """Logs, once for each value, that the operator's `listen` is not used."""
        from cutthrough.log.stderr import say

        if setting.source != "default" and setting != self._ignored:
            say(f"{setting.source}: {setting.key} is ignored: the service manager has "
                f"opened {' and '.join(map(show_address, self.listen))}")
        self._ignored = setting

    def blame(self, error: Mistake) -> Mistake:
        """Adds the source to mistakes about options that this host cannot use."""
        first, *others = [self._blame(mistake) for mistake in error.all]
        return first.with_others(others)

    def _blame(self, error: Mistake) -> Mistake:
        for name in ("policy", "users_file"):
            named = self.last.get(name)
            if named and named.value == error.source != "" and not os.path.exists(
                    named.value):
                return named.blame(f"{named.value}: {error.reason}")
        setting = self.last.get(error.key)
        if error.source or setting is None or not isinstance(error, ConfigError) or (
                setting.source == "default"):
            return error
        return setting.blame(error.reason, error.path)

    def read(self) -> tuple[Config, Policy]:
        """Raises ConfigError, PolicyError or OSError. A generated value (the name in
        Via) stays the same for the life of the program."""
        from cutthrough.generation.policy_files import load_files, load_policy

        mistakes: list[Mistake] = []
        settings = self.settings(mistakes)
        if not settings["via"].value:
            settings["via"] = settings["via"]._replace(value=self._via)
        if not mistakes:
            with noting(mistakes):
                config = build(settings)
        if mistakes:                         # find those in the other files too
            with noting(mistakes):
                load_files(settings["policy"].value, settings["users_file"].value)
            raise_all(mistakes)
        self._via = config.via
        policy = load_policy(config)
        stop_waiting()
        return config, policy


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    fill_standard()
    heed_children()
    with shown_errors():
        return finish(argv)


@contextlib.contextmanager
def shown_errors() -> Iterator[None]:
    """Within, messages on standard error are made visible (R83), because their paths,
    replies and names may come from strangers."""
    before = sys.stderr
    shown: Any = Shown(before)
    sys.stderr = shown
    try:
        yield
    finally:
        sys.stderr = before


def finish(argv: Sequence[str] | None) -> int:
    try:
        status = dispatch(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ModuleNotFoundError as error:
        return tell_unbuilt(error)
    except ImportError as error:
        if ".so" not in str(error):
            raise
        # "failed to map segment" of libc; as well of a file system without exec
        why = "" if "failed to map" not in str(error) else (
            ": not enough memory (ulimit -v, MemoryMax=), or mounted with noexec")
        print(f"cutthrough: a library cannot be loaded: {error}{why}", file=sys.stderr)
        return 1
    except MemoryError:
        print("cutthrough: not enough memory (ulimit -v, MemoryMax=)", file=sys.stderr)
        return 1
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            place = error.filename or ""
            print(f"cutthrough: {place}{': ' if place else ''}"
                  f"{error.strerror or error}", file=sys.stderr)
        # `| head`: the reader is gone, and the interpreter would write once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def tell_unbuilt(error: ModuleNotFoundError) -> int:
    """Prints the remedy for a module that is not compiled; returns the exit status."""
    text = cutthrough.why_unbuilt(error)
    if not text:
        raise error
    print(f"cutthrough: {text}", file=sys.stderr)
    return 1


def dispatch(argv: Sequence[str] | None) -> int:
    args = parse(argv)
    if args.verb is None:
        return 2
    if args.verb == "version":
        print(version())
        return 0
    sources = Sources(args)
    try:
        if module := module_of(args):
            verb: Any = importlib.import_module(f"cutthrough.{module}")
            return int(verb.run(args))
        if args.verb == "mcp":
            return serve_model(args, sources)
        if args.verb == "config":
            print_config(args, sources)
        elif args.verb == "check":
            notes = check(*sources.read())
            for note in notes:
                print(f"note: {note}")
            if notes and args.strict:
                print("the configuration is valid, but has notes (--strict)")
                return 1
            print("the configuration is valid")
        elif args.verb == "doctor" and args.kind == "host":
            return examine_host(args, sources)
        elif args.verb in ("explain", "route", "doctor"):
            return ask(args, *sources.read())
        else:
            return run(sources)
    except Mistake as error:
        return tell(error, sources)
    return 0


def module_of(args: argparse.Namespace) -> str:
    """The module whose `run` carries out the verb; "": this one has to."""
    if getattr(args, "fleet", False):
        return "tools.fleet"
    if args.verb == "flows" and args.action in HELD:
        return "tools.held"
    if args.verb == "flows" and (
            args.action == "open" or getattr(args, "admin", None)):
        return "tools.flows_admin"
    return VERBS[args.verb].module


def serve_model(args: argparse.Namespace, sources: Sources) -> int:
    try:
        from cutthrough.tools.mcp_server import run as run_mcp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ConfigError("command line", "mcp", "needs a package that is not "
                          "installed: pip install 'cutthrough[mcp]'") from None
    return run_mcp(args, sources.read if sources.file else None)


def tell(error: Mistake, sources: Sources) -> int:
    """Prints all mistakes; returns the exit status."""
    stream: Any = sys.stderr                 # as shown_errors has it, or plain
    shown = stream if isinstance(stream, Shown) else Shown(stream)
    for text in show_all(sources.blame(error)):
        reason, *lines = text.split("\n")     # the line of the file, and carets
        shown.write("cutthrough: ")
        shown.paint(reason, BOLD)
        for line in lines[:1]:
            shown.write(f"\n{line}")
        for line in lines[1:]:
            shown.write("\n")
            shown.paint(line, RED)
        shown.write("\n")
    return 2


def print_config(args: argparse.Namespace, sources: Sources) -> None:
    if args.markdown:
        from cutthrough.tools.config_docs import render as render_manual

        print(render_manual(), end="")
        return
    settings = sources.settings()
    print(render(settings), end="")
    if args.effective:
        from cutthrough.generation.effective import open_trial_sockets, show_effective
        from cutthrough.process.descriptors import raise_nofile

        config = build(settings)
        raise_nofile(0, 0)                   # as `serve` does
        with open_trial_sockets(config) as groups:
            print(show_effective(config, groups), end="")


def examine_host(args: argparse.Namespace, sources: Sources) -> int:
    from cutthrough.doctor.report import run as run_report

    config, policy = sources.read()          # once: a pipe can be read only once
    return run_report(config, policy, sources.last, sources.file or "", args.json)


def check(config: Config, policy: Policy) -> list[str]:
    """Makes the checks of `serve` before its first listener, and no log file. Returns
    what is valid and worth knowing. Raises ConfigError, PolicyError."""
    from cutthrough.generation.checks import check_log, complete, find_notes
    from cutthrough.generation.generation import Generation
    from cutthrough.process.loops import choose_loop

    generation = Generation(1, config, policy)
    mistakes: list[Mistake] = []
    with noting(mistakes):
        choose_loop(config.loop)
    with noting(mistakes):
        check_log(config.access_log, create=False)
    with noting(mistakes):
        complete(generation)
    raise_all(mistakes)
    return find_notes(generation)


def ask(args: argparse.Namespace, config: Config, policy: Policy) -> int:
    """Runs a verb that tests a configuration; returns the exit status."""
    if args.verb == "doctor":
        from cutthrough.doctor.ssrf import run as run_doctor

        return run_doctor(config, policy, args.who, args.host_network)
    request = (args.method, args.target)
    if args.verb == "route" and args.attempt:
        from cutthrough.doctor.try_route import run as run_attempt

        return run_attempt(config, policy, request, args.who, args.client,
                           args.json)
    if args.verb == "explain" and args.log:
        from cutthrough.tools.explain_log import run as run_replay

        return run_replay(config, policy, args.log, args.json)
    from cutthrough.tools.explain import WAY, Question, read_opening, read_tlvs
    from cutthrough.tools.explain import run as run_explain

    question = Question(*request, args.who, args.client, host=args.host)
    if args.verb == "route":
        return run_explain(config, policy, question, args.json, WAY)
    return run_explain(config, policy, question._replace(
        opening=read_opening(args.protocol, args.sni, args.ja4),
        tlvs=read_tlvs(args.tlv),
        prints=(args.client_ja4 or "", args.http2_fingerprint or "")), args.json)


def demonstrate(argv: Sequence[str]) -> int:
    """Serves for `python -c "import proxy"`; returns the exit status.

    The same as `cutthrough serve` with these flags, except that `origin` has a default.
    """
    fill_standard()
    heed_children()
    sources = Sources(parse(["serve", *argv]), DEMONSTRATION_ORIGIN)
    try:
        return run(sources)
    except ModuleNotFoundError as error:
        return tell_unbuilt(error)
    except Mistake as error:
        return tell(error, sources)


def run(sources: Sources) -> int:
    # Imported here: the other verbs need neither asyncio nor the compiled modules. The
    # worker loads its modules while the supervisor's are loaded.
    from cutthrough.supervisor.early_worker import EarlyWorker

    early = EarlyWorker.take()
    gc.disable()                             # modules are no garbage: 8 % of the time
    from cutthrough.supervisor.run import run as run_supervisor

    gc.enable()
    try:
        return run_supervisor(sources, early)
    except OSError as error:
        print(f"cutthrough: {error.filename or 'cannot start'}: "
              f"{describe_error(error)}", file=sys.stderr)
    except KeyboardInterrupt:                # before the supervisor caught signals
        pass
    return 1
