"""What a child process of the program gets in its environment."""

import signal
import subprocess
import sys

from cutthrough.config.config import SECRETS
from cutthrough.config.settings import variable_name
from cutthrough.process.environment import (
    EARLY,
    SECRET_VARIABLES,
    SIGNALS,
    worker_environment,
)


def test_the_numbers_are_those_of_the_signals():
    assert EARLY == {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
    assert SIGNALS == EARLY | {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}


def test_no_variable_of_a_secret_is_passed_on(monkeypatch):
    assert set(map(variable_name, SECRETS)) == SECRET_VARIABLES
    for name in (*SECRET_VARIABLES, "CUTTHROUGH_OF_SOMEBODY"):
        monkeypatch.setenv(name, "value")
    environ = worker_environment()
    assert SECRET_VARIABLES.isdisjoint(environ)
    assert environ["CUTTHROUGH_OF_SOMEBODY"] == "value"


def test_msgspec_is_imported_without_what_it_does_not_need():
    code = ("import sys; from cutthrough.process.lean import import_msgspec; "
            "import_msgspec(); import msgspec; "
            "print('typing_extensions' in sys.modules); import typing_extensions")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=60, check=True)
    assert done.stdout == "False\n"


def test_msgspec_reads_what_the_configuration_needs_without_it():
    """Annotated, Literal and unions, as the options and messages have them."""
    code = ("from cutthrough.process.lean import import_msgspec; import_msgspec()\n"
            "import sys; from cutthrough.config.config import OPTIONS\n"
            "from cutthrough.process import channel\n"
            "assert 'typing_extensions' not in sys.modules\n"
            "print(sorted(OPTIONS) == OPTIONS_OF_ALL)")
    names = subprocess.run(
        [sys.executable, "-c", "from cutthrough.config.config import OPTIONS; "
         "print(sorted(OPTIONS))"],
        capture_output=True, text=True, timeout=60, check=True).stdout
    done = subprocess.run(
        [sys.executable, "-c", f"OPTIONS_OF_ALL = {names.strip()}\n{code}"],
        capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"
