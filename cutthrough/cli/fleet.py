"""The arguments of `cutthrough fleet`, and of the verbs that take --fleet."""

import argparse


def add_fleet(verb: argparse.ArgumentParser, *, token: bool = False) -> None:
    """`token`: the verb has no --token-file of its own."""
    verb.add_argument("--fleet", action="store_true", help="at every proxy that is "
                      "registered in the fleet's Redis: docs/fleet.md")
    if token:
        verb.add_argument("--token-file", metavar="FILE", help="with --fleet: file "
                          "with the admin token [CUTTHROUGH_ADMIN_TOKEN_FILE, or the "
                          "token in CUTTHROUGH_ADMIN_TOKEN]")
    add_registry(verb, "with --fleet: ")


def add_fleet_verb(verb: argparse.ArgumentParser) -> None:
    verb.set_defaults(fleet=True, admin=None)
    verb.add_argument("--token-file", metavar="FILE", help="file with the admin token "
                      "[CUTTHROUGH_ADMIN_TOKEN_FILE, or the token in "
                      "CUTTHROUGH_ADMIN_TOKEN]")
    add_registry(verb, "")
    verb.add_argument("--json", action="store_true", help="print JSON, one proxy a "
                      "line")


def add_registry(verb: argparse.ArgumentParser, when: str) -> None:
    verb.add_argument("--fleet-url-file", metavar="FILE", help=f"{when}file with the "
                      "URL of its Redis [CUTTHROUGH_FLEET_URL_FILE, or the URL in "
                      "CUTTHROUGH_FLEET_URL]")
    verb.add_argument("--fleet-prefix", metavar="TOKEN", help=f"{when}prefix of its "
                      "keys [CUTTHROUGH_FLEET_PREFIX, or cutthrough]")
    verb.add_argument("--timeout", metavar="SECONDS", type=limit, default=10.0,
                      help=f"{when}time for each proxy's answer [10]")
    verb.add_argument("--cacert", metavar="FILE", help=f"{when}authorities in PEM of "
                      "admin addresses with https [the system's]")


def limit(text: str) -> float:
    """The time for an answer."""
    number = float(text)
    if not 0.1 <= number <= 3600:            # nor NaN
        raise ValueError
    return number
