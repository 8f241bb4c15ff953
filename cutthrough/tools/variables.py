"""What the proxy of a tool (`inspect`, `run`, the plugin of pytest) takes from the
environment.

A shell whose variables are a server's must not keep a tool from its work: a variable
that the tool has a value of its own for, or that `serve` would refuse, does not apply,
and a line says so.
"""

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence

from cutthrough.config.config import OPTIONS, SECRETS, Config
from cutthrough.config.mistake import Mistake, noting, raise_all
from cutthrough.config.settings import (
    OUR_OWN,
    Setting,
    Settings,
    add_flags,
    build,
    gather,
    variable_name,
)
from cutthrough.generation.checks import complete
from cutthrough.generation.generation import Generation
from cutthrough.generation.policy_files import load_policy

CONFIG = variable_name("config")
# Options that decide which requests pass: a line says that they do not apply. Variables
# of the others are of use to verbs that read captures and recordings
DECIDING = ("policy", "policy_hook", "auth_hook", "dns_hook", "connect_ports",
            "address_floor")


def applicable(verb: str, own: Collection[str], flags: Sequence[str],
               environ: Mapping[str, str], file: str | None = None,
               given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a `cutthrough serve` with these flags and this file, without
    the variables of `own` and those that would end its start, and with those that are
    `given`. Prints a line for each that does not apply, but for those that are merely
    replaced."""
    given = given or {}
    variables = {name: value for name, value in environ.items() if name != CONFIG}
    for name in dict.fromkeys((*own, *DECIDING)):
        for option in (name, SECRETS.get(name)):
            if option and variables.pop(variable_name(option), None) and (
                    option in DECIDING):
                tell(variable_name(option), f"`cutthrough {verb}` has its own")
    while names := [name for name, value in variables.items()
                    if name.startswith("CUTTHROUGH_") and name not in OUR_OWN
                    and value]:
        mistake = find_mistake(flags, {**variables, **given}, file)
        if mistake is None or find_mistake(flags, given, file) is not None:
            break                            # the rest is said by the start itself
        blamed = [mistake.key] if mistake.key in names else [
            name for name in names
            if differs(mistake, find_mistake(
                flags, {**without(variables, name), **given}, file))
        ] or names
        for name in blamed:
            tell(name, mistake.reason if mistake.key == name else str(mistake))
            del variables[name]
    return {**variables, **given}


def without(variables: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in variables.items() if key != name}


def differs(mistake: Mistake, other: Mistake | None) -> bool:
    return other is None or str(other) != str(mistake)


def usable_file(verb: str, own: Collection[str], environ: Mapping[str, str]
                ) -> str | None:
    """The file of CUTTHROUGH_CONFIG, if the whole of it applies (R92); else a line says
    why it does not."""
    file = environ.get(CONFIG)
    if not file:
        return None
    try:
        check_file(verb, file, own)
    except Mistake as mistake:
        tell(CONFIG, str(mistake))
        return None
    return file


def check_file(verb: str, file: str, own: Collection[str]) -> None:
    """Raises ConfigError if this file has options that the verb has values of its own
    for, because they would not apply, and nobody would notice, as with a policy (R92).
    """
    reason = (f"`cutthrough {verb}` has its own, and this one would not apply: give a "
              "file without it")
    settings = gather({}, {}, file, secrets=False)
    raise_all([settings[name].blame(reason) for name in own
               if settings[name].source == file])


def find_mistake(flags: Sequence[str], variables: Mapping[str, str], file: str | None
                 ) -> Mistake | None:
    """Why `cutthrough serve` would not start; None: nothing is known."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    mistakes: list[Mistake] = []
    with noting(mistakes):
        settings = gather(vars(parser.parse_args(flags)), variables, file,
                          mistakes=mistakes)
        if not mistakes:
            examine(build(settings), settings)
    return mistakes[0] if mistakes else None


def examine(config: Config, settings: Settings) -> None:
    """Raises Mistake, with the variable as its key if it is about the value of one."""
    try:
        complete(Generation(1, config, load_policy(config)))
    except Mistake as mistake:
        setting: Setting | None = settings.get(mistake.key)
        if mistake.source or setting is None or mistake.key not in OPTIONS:
            raise
        raise setting.blame(mistake.reason) from None


def tell(variable: str, reason: str) -> None:
    print(f"cutthrough: {variable} does not apply: {reason}", file=sys.stderr)
