"""`python -m tests.support.with_policy JSON FLAG…`: the program, with this Policy."""

import sys

import msgspec

from cutthrough.config.config import Config
from cutthrough.config.settings import load
from cutthrough.generation.generation import Mistake
from cutthrough.policy.source import Limits, Policy
from cutthrough.supervisor.early_worker import EarlyWorker
from cutthrough.supervisor.run import run


def command_with(limits: Limits) -> tuple[str, ...]:
    """Returns the command for Proxy: the program with these limits for all users."""
    policy = Policy(limits={"default": limits})
    return ("-m", __name__, msgspec.json.encode(policy).decode())


class Sources:
    """A policy from the command line, in place of policy files."""

    listen: tuple[tuple[str, int], ...] = ()
    on_bundle = None

    def read(self) -> tuple[Config, Policy]:
        policy = msgspec.json.decode(sys.argv[1], type=Policy)
        return load(sys.argv[2:]), policy

    def blame(self, error: Mistake) -> Mistake:
        return error


def main() -> int:
    return run(Sources(), EarlyWorker.start())


if __name__ == "__main__":
    sys.exit(main())
