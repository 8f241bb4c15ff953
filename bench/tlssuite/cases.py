"""tlsfuzzer's scripts: which are run, with which arguments, and what they said."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = re.compile(r'getopt\.getopt\(\s*argv,\s*"([^"]*)"')
# A conversation that begins
BEGINS = re.compile(r'^(?:(\S.*) \.\.\.|"(.*)" repeat \d+(?:\.\.\.)?)$')
RANDOM = re.compile(r"(?<=StructuredRandom\().*(?=\))")
FAILED_BY = re.compile(r"^(?:\w+\.)*(\w*Error|\w*Exception|timeout)(?:: (.*))?$")
OF_ECDSA = ("ecdsa-sig-flexibility", "tls13-ecdsa-support")
WHOLE = "(the script)"      # as a conversation: it did not come to its end

# By conversation: "" if it went as tlsfuzzer demands, else what was seen instead.
Verdicts = dict[str, str]


def read_table() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The reason of each script that is not run, and the arguments of the others."""
    table = tomllib.loads((HERE / "scripts.toml").read_text())
    skipped = {script: group["reason"] for group in table["skipped"]
               for script in group["scripts"]}
    return skipped, table["arguments"]


def list_scripts(source: Path) -> list[str]:
    return sorted(path.stem.removeprefix("test-")
                  for path in (source / "scripts").glob("test-*.py"))


def read_options(source: Path, script: str) -> str:
    """Returns the letters of a script's options, as getopt has them."""
    name = "test_" + script.replace("-", "_") + ".py"
    letters = OPTIONS.search((source / "tlsfuzzer/_apps" / name).read_text())
    return letters[1] if letters else ""


def arguments_of(script: str, options: str, key: str, own: Iterable[str],
                 most: int) -> list[str] | None:
    """Returns a script's arguments for a server with this kind of key; None if the
    script cannot be run with it. `own`: those of scripts.toml; `most`: conversations,
    chosen by chance."""
    is_13 = script.startswith("tls13-")
    words = [word.replace("KEY", key.upper()) for word in own]
    if key != "rsa" and not (is_13 or "C:" in options):
        return None                         # its suites are RSA's
    if key == "rsa" and script in OF_ECDSA:
        return None
    if "-C" not in words and "-d" not in words:
        if "C:" in options:
            words += ["-C", "TLS_AES_128_GCM_SHA256" if is_13 else
                      f"TLS_ECDHE_{key.upper()}_WITH_AES_128_GCM_SHA256"]
        elif "d" in options and not is_13:
            words.append("-d")
    if "n:" in options and "-n" not in words:
        words += ["-n", str(most)]
    return words


def read_verdicts(output: str, status: int | None) -> Verdicts:
    """Reads the output of a script. `status`: its exit status; None: it was ended.

    A conversation that a script repeats passes if it passes each time.
    """
    verdicts: Verdicts = {}
    name, last, is_open = "", "", False

    def close(verdict: str) -> None:
        verdicts[name] = verdicts.get(name) or verdict

    for line in output.splitlines():
        if heading := BEGINS.match(line):
            if is_open:
                close(last or "failed")
            name, last, is_open = RANDOM.sub("…", heading[1] or heading[2]), "", True
        elif is_open and (line.startswith("OK") or line == "Test end"):
            close("" if line.startswith("OK") else last or "failed")
            is_open = False
        elif reason := FAILED_BY.match(line):
            last = reason[2] or reason[1]
    if is_open or status not in (0, 1) or not verdicts:
        verdicts[WHOLE] = last or f"exit status {status}"
    return verdicts


def differences(ours: Verdicts, nginx: Verdicts) -> list[str]:
    """Conversations with another verdict than nginx's. A few scripts choose some in a
    way that SEED does not decide."""
    return [name for name in ours if name in nginx
            and bool(ours[name]) != bool(nginx[name])]
