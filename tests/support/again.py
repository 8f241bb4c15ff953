"""python -m tests.support.again: runs tests that failed beside others again, alone.

`make test` runs parts of the tests side by side, and a shared machine may be so slow
for a moment that a program of others (a browser, a name server) is late. Each part
notes its failures (`--failures FILE`). A few of them run again here, in one process; if
a test then passes, it is named as unsteady, and wants to be mended. More than a few
have another cause, and do not run again.
"""

import subprocess
import sys
from pathlib import Path

FAILURES = Path(__file__).resolve().parents[2] / "build" / "failures"

#: Of some 13 000 tests
MOST = 5


def note_failures(file: Path, failed: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{test}\n" for test in failed))


def main() -> int | str:
    noted = sorted(FAILURES.glob("*"))
    failed = [test for file in noted for test in file.read_text().splitlines()]
    if not failed:
        return 0
    listed = "\n  ".join(failed)
    if len(failed) > MOST:
        return f"again: of {len(failed)} at most {MOST} run again:\n  {listed}"
    print(f"again: failed beside others, and run once more:\n  {listed}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed]).returncode
    if again:
        return "again: they fail alone, too"
    print(f"again: unsteady, because they passed alone:\n  {listed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
