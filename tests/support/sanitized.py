"""`make asan` preloads the sanitizers' libraries into the tests' Python.

Of the programs that the tests start, only those in Python need them. Others may end
because of them.
"""

import os
import subprocess
import sys
from typing import Any

#: The sanitizers must come first, and change memory use.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")


def keep_to_python() -> None:
    """From now on other programs start without them."""
    begin = subprocess.Popen.__init__
    ours = os.path.dirname(sys.executable)

    def start(self: Any, args: Any, *more: Any, **keywords: Any) -> None:
        words = [args] if isinstance(args, str | bytes | os.PathLike) else args
        if not any(ours in os.fsdecode(word) for word in words):
            environment = keywords.get("env")
            environment = os.environ if environment is None else environment
            keywords["env"] = {
                name: environment[name] for name in environment if name != "LD_PRELOAD"}
        begin(self, args, *more, **keywords)

    # Ignored: to mypy each exchange of a method is a mistake; here it is the aim
    subprocess.Popen.__init__ = start  # type: ignore[method-assign]
