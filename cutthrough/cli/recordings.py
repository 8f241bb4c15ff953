"""The arguments of `cutthrough mode`, `cutthrough recordings` and `cutthrough
run`."""

import argparse

from cutthrough.cli.fleet import add_fleet
from cutthrough.cli.flows import number

# As recording.sessions.modes has them
MODES = ("rules", "off", "record", "replay", "cache", "spy")
# Of `cutthrough run`: VCR.py's, and those of a rule
CASSETTE_MODES = ("once", "new_episodes", "none", "all", *MODES[2:])


def add_directory(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--directory", metavar="DIR", help="that recording_directory "
                      "names [CUTTHROUGH_RECORDING_DIRECTORY, or that of `cutthrough "
                      "run`, ~/.local/state/cutthrough/recordings]")


def add_mode(verb: argparse.ArgumentParser) -> None:
    add_directory(verb)
    verb.add_argument("mode", nargs="?", choices=MODES, help="in place of the rules' "
                      "modes; rules: each rule's own [show the present one]")
    verb.add_argument("--session", metavar="NAME", help="record and replay this "
                      "session; \"\": the configured one")
    verb.add_argument("--json", action="store_true", help="as JSON")
    add_fleet(verb, token=True)


def add_bounds(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--count", metavar="N", help="most recordings, oldest out first; "
                      "0: no limit")
    verb.add_argument("--age", metavar="DURATION", help="age at which a recording is "
                      "deleted, such as 7d; 0: never")


def add_recordings(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, session: bool = True) -> argparse.ArgumentParser:
        parser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False)
        parser.set_defaults(own=parser)
        add_directory(parser)
        parser.add_argument(
            "--url-file", metavar="FILE", help="file with the URL of the sessions' "
            "PostgreSQL [CUTTHROUGH_RECORDING_URL_FILE, or the URL in "
            "CUTTHROUGH_RECORDING_URL; without: files of the directory]")
        if session:
            parser.add_argument("session", metavar="SESSION")
        return parser

    sub = add("list", "list sessions, or the recordings of one", session=False)
    sub.add_argument("session", metavar="SESSION", nargs="?", default="")
    sub.add_argument("words", metavar="WORD", nargs="*", help="that must be in it")
    sub.add_argument("--limit", type=number, metavar="N", default=100,
                     help="of those with these words, the newest N [100]")
    sub = add("create", "make a session without recordings")
    add_bounds(sub)
    for name, metavar, text in (
            ("fields", "FIELD", "fields whose values are not kept"),
            ("query", "KEY", "keys of URLs and forms, likewise"),
            ("json", "PATH", "paths in JSON bodies, likewise"),
            ("body", "REGEX", "expressions whose groups, or matches, are not kept")):
        sub.add_argument(f"--redact-{name}", metavar=metavar, action="append",
                         help=f"{text}; may be repeated [recording_redact_{name}]")
    sub.add_argument("--comment", metavar="TEXT", default="", help="what it is for")
    sub.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                     help="with what holds if a flag says nothing [CUTTHROUGH_CONFIG]")
    sub = add("set", "set the bounds of a session, and delete what is beyond them")
    add_bounds(sub)
    sub = add("edit", "replace a recording by JSON, as `show` prints it")
    sub.add_argument("number", metavar="NUMBER", type=number)
    sub.add_argument("file", metavar="FILE", help="-: standard input")
    add("reads", "show who has read a session, the newest first")
    text = "print what `run` and pytest know of some APIs, for a configuration"
    sub = actions.add_parser("presets", help=text, description=text, allow_abbrev=False)
    sub.set_defaults(own=sub)
    sub = add("show", "show a recording as JSON")
    sub.add_argument("number", metavar="NUMBER", type=number)
    sub.add_argument("--body", choices=("request", "response"), help="print this body "
                     "alone")
    sub = add("delete", "delete a session, or recordings of it")
    sub.add_argument("--id", metavar="NUMBER", type=number, action="append", default=[],
                     help="this recording; may be repeated")
    sub = add("export", "write a session as files for other programs")
    sub.add_argument("--form", choices=("json", "yaml", "vcr", "har"), default="json",
                     help="a directory of JSON or YAML, a cassette of VCR.py, a HAR "
                     "[json]")
    sub.add_argument("--key-file", metavar="FILE", help="also write the key of the "
                     "hashes, into a new file: who has it can guess short secrets")
    sub.add_argument("output", metavar="PATH")
    sub = add("import", "add recordings of directories of export, exports of "
              "replayproxy, cassettes of VCR.py, simulations of hoverfly, HTTP "
              "Archives and dumps of mitmproxy")
    sub.add_argument("--base-url", metavar="URL", help="scheme and host of requests in "
                     "exports of replayproxy [https, and their field Host]")
    sub.add_argument("--key-file", metavar="FILE", help="make the hashes of the "
                     "directory by this key of `export`; it must have no session yet")
    sub.add_argument("files", metavar="PATH", nargs="+")


def add_run(verb: argparse.ArgumentParser) -> None:
    add_directory(verb)
    verb.add_argument("--cassette", metavar="NAME", required=True,
                      help="the session that is recorded and replayed")
    verb.add_argument("--mode", choices=CASSETTE_MODES, default="once", help="as "
                      "VCR.py has them, or as rules do: docs/recording.md [once]")
    verb.add_argument("--ca", metavar="DIR", help="the authority; made if there is "
                      "none [~/.local/share/cutthrough/ca]")
    verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                      help="options of the proxy, such as recording_routes")
    verb.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER,
                      help="the command and its arguments, after --")
