"""The command line: `cutthrough serve | check | config | explain …`.

Exit status: 0 after a clean stop, 2 for a configuration that cannot be used, 1 for
anything else (`explain`: a refusal or a change; `doctor`: something passed). Errors are
one line on standard error.
"""

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence

import cutthrough
from cutthrough.config import OPTIONS, Config, ConfigError
from cutthrough.files import stop_waiting
from cutthrough.policy.source import Policy, PolicyError
from cutthrough.settings import (
    Setting,
    Settings,
    add_flags,
    build,
    flag_name,
    gather,
    no_such_option,
    render,
)

# What `import proxy` forwards requests in origin form to, unless told otherwise: the
# web server of this machine, so that the usual benchmark command works as it stands.
DEMONSTRATION_ORIGIN = "http://127.0.0.1:80"

VERBS = {
    "serve": "run the proxy until it is told to stop",
    "check": "validate the configuration and exit: 0, or 2 with the reason",
    "config": "print the configuration in force as TOML, without secrets",
    "passwd": "make a line of users_file; asks for the password, or reads it",
    "explain": "say what would become of a request, and which rule decides",
    "suggest": "propose rules for what an access log in JSON says was refused",
    "doctor": "look whether the host is fit; doctor ssrf: try the address floor",
    "top": "show what a running proxy does, by its admin listener",
    "conns": "list its connections",
    "kill": "end those that are meant",
    "version": "print the version",
}
# Verbs about a configuration for which somebody asks: there --user says who.
ASKING = ("explain", "doctor")
WITHOUT = ("user", "password", "password_file")
CONSOLE = ("top", "conns", "kill")
# Those of connections; the states as session.state has them, which is not loaded here.
STATES = ("head", "idle", "auth", "decide", "resolve", "dial", "request", "response",
          "relay", "tunnel", "half_closed", "linger")
SELECTORS = {
    "user": ("NAME", "of this user"), "client": ("ADDRESS", "from this address"),
    "id": ("ID", "the one of this id"),
    "host": ("NAME", "to this destination; *.SUFFIX: to what ends so"),
    "state": ("STATE", f"in this state: {', '.join(STATES)}"),
    "kind": ("KIND", "tunnel, request or idle"),
    "older": ("TIME", "open for so long, or longer: 90, in seconds, or 10m"),
    "bytes": ("SIZE", "that have moved so much, both directions together, or more"),
}
KINDS = ("host", "ssrf")                     # of doctor
SOURCES = ("Every option is also a variable, CUTTHROUGH_HEAD_TIMEOUT, and a key of the "
           "file, head_timeout. A flag goes before the variable, that before the file.")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cutthrough", allow_abbrev=False, description="A forward proxy.")
    parser.add_argument("--version", action="version", version=version())
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, text in VERBS.items():
        # No abbreviations: a new option must not make an old command line ambiguous.
        takes_options = name not in ("version", "passwd", "suggest", "doctor", *CONSOLE)
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False,
                                usage=usage_of(name) if takes_options else None,
                                epilog=SOURCES if takes_options else None)
        verb.set_defaults(own=verb)
        if name == "passwd":
            add_passwd(verb)
        elif name == "suggest":
            add_log(verb, required=True)
        elif name == "explain":
            add_explain(verb)
        elif name == "doctor":
            add_doctor(verb)
        elif name in CONSOLE:
            add_console(verb, name)
        elif takes_options:
            add_options(verb)
        if name == "config":
            add_config(verb)
        if name == "check":
            verb.add_argument("--without-secrets", action="store_true", help="do not "
                              "read password_file and its like: they are elsewhere, or "
                              "another's to read")
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it cannot be understood."""
    parser = make_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["doctor"] and not {*words[1:2]} & {*KINDS, "-h", "--help"}:
        words.insert(1, KINDS[0])
    given, left = parser.parse_known_args(words)
    if left:
        flag = left[0].partition("=")[0]
        parser.error(f"command line: {flag}: " + refuse(
            flag, given.verb, given.own if given.verb else parser))
    if given.verb == "kill" and not any(
            getattr(given, name) for name in (*SELECTORS, "all")):
        parser.error("kill: which ones? Name " + ", ".join(
            map(flag_name, SELECTORS)) + "; --all means every one")
    if given.verb == "explain" and (bool(given.log) == bool(given.target)
                                    or (given.log and given.method)):
        parser.error("explain takes METHOD and TARGET, or --log FILE")
    if given.verb is None:
        parser.print_help(sys.stderr)
    return given


def refuse(flag: str, verb: str | None, own: argparse.ArgumentParser) -> str:
    """Why this verb, whose flags `own` has, cannot take it."""
    if verb and flag in map(flag_name, OPTIONS):
        return f"is no option of {verb}"
    return no_such_option(flag, own._option_string_actions.keys() - {flag})


def usage_of(verb: str) -> str:
    """In one line: of sixty options argparse makes forty, in front of every mistake."""
    left = " (METHOD TARGET | --log FILE)" if verb == "explain" else ""
    return f"cutthrough {verb} [-c FILE] [--OPTION VALUE …]{left}"


def add_config(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--effective", action="store_true",
                      help="say also what comes of it on this host: workers, CPUs, "
                      "socket options asked for and in force")
    verb.add_argument("--markdown", action="store_true",
                      help="print docs/config.md, which explains every option")


def add_options(verb: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                      help="read the options in this TOML file")
    add_flags(verb, without)


def add_who(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--user", metavar="NAME", dest="who", default="",
                      help="who asks [the one user of the configuration]")


def add_log(verb: argparse.ArgumentParser, required: bool = False) -> None:
    verb.add_argument("--log", metavar="FILE", required=required,
                      help="an access log in JSON lines; - is standard input")


def add_explain(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("method", metavar="METHOD", nargs="?", help="CONNECT, GET …")
    verb.add_argument("target", metavar="TARGET", nargs="?",
                      help="host:port of CONNECT, http://… of other methods")
    add_who(verb)
    verb.add_argument("--client", metavar="IP", default="127.0.0.1",
                      help="from where [127.0.0.1]")
    add_log(verb)
    verb.add_argument("--json", action="store_true", help="print JSON")
    add_options(verb, WITHOUT)


def add_doctor(verb: argparse.ArgumentParser) -> None:
    kinds = verb.add_subparsers(dest="kind", metavar="KIND", required=True)
    text = "is this host fit for this configuration? 1 if something will not work"
    host = kinds.add_parser(KINDS[0], help=f"{text}; without a KIND it is this one",
                            description=text, allow_abbrev=False, epilog=SOURCES,
                            usage=usage_of("doctor"))
    host.add_argument("--json", action="store_true", help="print JSON")
    host.set_defaults(own=host)
    add_options(host)
    text = "ask for forbidden addresses in 200 disguises; 1 if any passes"
    ssrf = kinds.add_parser(KINDS[1], help=text, description=text, allow_abbrev=False,
                            epilog=SOURCES, usage=usage_of("doctor ssrf"))
    ssrf.set_defaults(own=ssrf)
    add_who(ssrf)
    add_options(ssrf, WITHOUT)


def add_passwd(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("user", metavar="USER")
    verb.add_argument("--file", metavar="FILE",
                      help="put the line into this file, made if need be")
    verb.add_argument("--algorithm", default="bcrypt", help="[bcrypt]",
                      choices=("bcrypt", "argon2", "sha512"))


def add_console(verb: argparse.ArgumentParser, name: str) -> None:
    verb.add_argument("--admin", metavar="HOST:PORT|unix:PATH",
                      help="where the proxy's admin listener is [CUTTHROUGH_ADMIN]")
    verb.add_argument("--token-file", metavar="FILE",
                      help="its token [CUTTHROUGH_ADMIN_TOKEN or …_TOKEN_FILE]")
    if name == "top":
        verb.add_argument("--interval", type=seconds, default=1.0, metavar="SECONDS",
                          help="time between two looks [1]")
        verb.add_argument("--count", type=looks, default=0, metavar="N",
                          help="looks, 0 for no end [0]; not on a terminal: 1")
        return
    for field, (metavar, text) in SELECTORS.items():
        verb.add_argument(f"--{field}", metavar=metavar, help=text)
    verb.add_argument("--all", action="store_const", const="true", help="every one")
    if name == "conns":
        verb.add_argument("--json", action="store_true", help="as JSON, one a line")
        verb.add_argument("--trace", metavar="ID", help="what this one did last")


def seconds(text: str) -> float:
    """A time between two looks."""
    number = float(text)
    if not 0.01 <= number <= 86400:          # nor NaN
        raise ValueError
    return number


def looks(text: str) -> int:
    number = int(text)
    if number < 0:                           # it would never come to nothing
        raise ValueError
    return number


def version() -> str:
    return f"cutthrough {cutthrough.__version__}"


class Sources:
    """Where this command line's options come from; read anew at each reload.

    `origin`: where requests in origin form go unless a source says so. `listen`:
    addresses that the service manager has opened; they stand for the option.
    """

    def __init__(self, given: argparse.Namespace, origin: str = "") -> None:
        self._given = given
        self._origin = origin
        self.listen: tuple[tuple[str, int], ...] = ()
        self._via = ""
        self.last: Settings = {}             # what `settings` returned last

    @property
    def file(self) -> str | None:
        return self._given.config_file or os.environ.get("CUTTHROUGH_CONFIG") or None

    def settings(self) -> Settings:
        """Raises ConfigError."""
        settings = gather(vars(self._given), os.environ, self.file,
                          not getattr(self._given, "without_secrets", False))
        if self._origin and settings["origin"].source == "default":
            settings["origin"] = settings["origin"]._replace(value=self._origin)
        if self.listen:
            settings["listen"] = Setting(self.listen, "LISTEN_FDS", "listen")
        self.last = settings
        return settings

    def blame(self, error: ConfigError) -> ConfigError:
        """Says where the option was said that cannot be used on this host."""
        setting = self.last.get(error.key)
        if error.source or setting is None:
            return error
        return ConfigError(setting.source, setting.key, error.reason)

    def read(self) -> tuple[Config, Policy]:
        """Raises ConfigError, PolicyError or OSError. What is made anew at each start
        (our name in Via) stays for the life of the program."""
        from cutthrough.control.load import load_policy

        settings = self.settings()
        if not settings["via"].value:
            settings["via"] = settings["via"]._replace(value=self._via)
        config = build(settings)
        self._via = config.via
        policy = load_policy(config)
        stop_waiting()
        return config, policy


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    fill_standard()
    try:
        status = dispatch(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if not isinstance(error, BrokenPipeError):           # a full disk
            print(f"cutthrough: {error.filename or 'standard output'}: "
                  f"{error.strerror or error}", file=sys.stderr)
        # `| head`: nobody reads what is left, and the interpreter would try once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def fill_standard() -> None:
    """Opens /dev/null for each of 0, 1 and 2 that whoever started us has closed.

    A socket or the workers' counters had its number, and what we say was written there.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):             # in Latin-1 there is no …
        sys.stdout.reconfigure(errors="backslashreplace")


def dispatch(argv: Sequence[str] | None) -> int:
    given = parse(argv)
    if given.verb is None:
        return 2
    if given.verb == "version":
        print(version())
        return 0
    if given.verb == "passwd":
        from cutthrough.control.passwd import run as run_passwd

        return run_passwd(given.user, given.file, given.algorithm)
    sources = Sources(given)
    try:
        if given.verb == "suggest":
            from cutthrough.control.suggest import run as run_suggest

            return run_suggest(given.log)
        if given.verb in CONSOLE:
            from cutthrough.control.console import run as run_console

            return run_console(given)
        if given.verb == "config":
            print_config(given, sources)
        elif given.verb == "check":
            check(*sources.read())
            print("the configuration is valid")
        elif given.verb == "doctor" and given.kind == "host":
            return examine_host(given, sources)
        elif given.verb in ASKING:
            return ask(given, *sources.read())
        else:
            return run(sources)
    except ConfigError as error:
        print(f"cutthrough: {sources.blame(error)}", file=sys.stderr)
        return 2
    except PolicyError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 2
    return 0


def print_config(given: argparse.Namespace, sources: Sources) -> None:
    if given.markdown:
        from cutthrough.control.manual import render as render_manual

        print(render_manual(), end="")
        return
    settings = sources.settings()
    print(render(settings), end="")
    if given.effective:
        from cutthrough.control.descriptors import raise_nofile
        from cutthrough.control.effective import show_effective, trial

        raise_nofile()                       # as `serve` does
        config = build(settings)
        with trial(config) as groups:
            print(show_effective(config, groups), end="")


def examine_host(given: argparse.Namespace, sources: Sources) -> int:
    from cutthrough.control.host.report import run as run_report

    config, policy = sources.read()          # once: a pipe has no second time
    return run_report(config, policy, sources.last, sources.file or "", given.json)


def check(config: Config, policy: Policy) -> None:
    """What `serve` does before it opens a listener; no log file is made. Raises
    ConfigError, PolicyError."""
    from cutthrough.control.generation import Generation
    from cutthrough.control.loops import choose_loop
    from cutthrough.control.start import check_log, validate

    choose_loop(config.loop)
    check_log(config.access_log, create=False)
    validate(Generation(1, config, policy))


def ask(given: argparse.Namespace, config: Config, policy: Policy) -> int:
    """Runs a verb that asks what a configuration does; returns the exit status."""
    if given.verb == "doctor":
        from cutthrough.control.doctor import run as run_doctor

        return run_doctor(config, policy, given.who)
    if given.log:
        from cutthrough.control.replay import run as run_replay

        return run_replay(config, policy, given.log, given.json)
    from cutthrough.control.explain import run as run_explain

    return run_explain(config, policy, (given.method, given.target), given.who,
                       given.client, given.json)


def demonstrate(argv: Sequence[str]) -> int:
    """Serves for `python -c "import proxy"`; returns the exit status.

    As `cutthrough serve` with these flags, but for `origin`, which has a default here.
    """
    fill_standard()
    given = parse(["serve", *argv])
    try:
        return run(Sources(given, DEMONSTRATION_ORIGIN))
    except (ConfigError, PolicyError) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 2


def run(sources: Sources) -> int:
    # Here, so that the other verbs do without asyncio and the compiled modules.
    from cutthrough.control.supervisor import run as run_supervisor

    try:
        return run_supervisor(sources)
    except OSError as error:
        print(f"cutthrough: {error.filename or 'cannot start'}: "
              f"{error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:                # before the supervisor caught signals
        pass
    return 1
