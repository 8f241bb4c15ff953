"""A configuration's options of recordings, checked before a worker has it; and the
operator's hooks: an object with `on_record`, `on_replay` or both.

    on_record(recording) -> Recording | None      in the writer; None: it is not kept
    on_replay(request, recording) -> Response | None      in a worker; None: as it is
"""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, read_file
from cutthrough.config.mistake import Mistake, raise_all
from cutthrough.config.recordings import RecordingRoute
from cutthrough.generation.operator_code import make_object
from cutthrough.policy.source import Policy

NAMES = ("on_record", "on_replay")


def make_hooks(config: Config, policy: Policy) -> Any:
    """Returns the object; None: there is none. Raises ConfigError."""
    name = config.recording_hooks
    if not name or not policy.records:
        return None
    hooks, reason = make_object(name, policy.code)
    if not reason:
        functions = [getattr(hooks, hook, None) for hook in NAMES]
        if not any(map(callable, functions)):
            reason = f"has neither {' nor '.join(NAMES)}"
        elif any(map(inspect.iscoroutinefunction, functions)):
            reason = "on_record and on_replay are no async functions"
    if reason:
        raise ConfigError("", "recording_hooks", f"{name}: {reason}")
    return hooks


def check_recordings(config: Config) -> None:
    """Raises ConfigError with everything that workers and the writer could not use."""
    mistakes: list[Mistake] = []
    if config.recording_directory:
        try:
            check_directory(config.recording_directory)
        except OSError as error:
            mistakes.append(ConfigError(
                "", "recording_directory", error.strerror or str(error)))
    for key in ("redact_body", "recording_redact_body"):
        if texts := getattr(config, key):
            mistakes += check_expressions(key, texts)
    for row in config.recording_routes:
        mistakes += check_route(row)
    raise_all(mistakes)


def check_directory(path: str) -> None:
    """Raises OSError if there is no such directory and none can be made."""
    folder = Path(path)
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    os.stat(f"{folder}/.")


def check_expressions(key: str, texts: tuple[str, ...]) -> list[Mistake]:
    # Imported here, and below, because most configurations record nothing
    from cutthrough.exchange.bounds import KeyMistake
    from cutthrough.exchange.expressions import compile_expression

    mistakes: list[Mistake] = []
    for text in texts:
        try:
            compile_expression(text)
        except KeyMistake as error:
            mistakes.append(ConfigError("", key, str(error)))
    return mistakes


def check_route(row: RecordingRoute) -> list[Mistake]:
    from cutthrough.exchange.bounds import KeyMistake
    from cutthrough.exchange.documents import compile_path
    from cutthrough.exchange.expressions import compile_expression
    from cutthrough.recording.match.keys import compile_path_of
    from cutthrough.recording.match.matcher import Matcher
    from cutthrough.recording.model.grpc_messages import read_steps
    from cutthrough.recording.play.player import make_route

    mistakes: list[Mistake] = []

    def note(error: KeyMistake, *key: str) -> None:
        mistakes.append(ConfigError(
            "", "recording_routes", str(error), path=(row.name, *key)))

    compile_ignored: Callable[[str], object] = compile_path
    if row.body == "grpc":
        compile_ignored = read_steps
        try:
            read_file(row.descriptors)       # `watch` looks at it from now on
        except (OSError, FileError) as error:
            note(KeyMistake(f"{row.descriptors}: " + (
                getattr(error, "strerror", None) or str(error))), "descriptors")
    ids = tuple(path for path in row.refresh_ids if path.startswith("$"))
    for key, texts, compile_one in (
            ("body_paths", row.body_paths, compile_path_of(row.body)),
            ("body_regexes", row.body_regexes, compile_expression),
            ("path_regexes", row.path_regexes, compile_expression),
            ("redact_body", row.redact_body, compile_expression),
            ("ignored_paths", row.ignored_paths, compile_ignored),
            ("refresh_ids", ids, compile_path)):
        for text in texts:
            try:
                compile_one(text)
            except KeyMistake as error:
                note(error, key)
    if not mistakes:
        try:
            Matcher((make_route(row),))      # as a worker will
        except KeyMistake as error:
            note(error, *(("descriptors",) if row.body == "grpc" else ()))
    return mistakes
