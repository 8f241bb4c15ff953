"""One target under libFuzzer: python -m tests.fuzz.child TARGET BUILD NAME FLAG…

BUILD is the directory of the `fuzz` build; NAME and the flags are for libFuzzer, which
starts NAME again when it needs a second process. The modules of that build count their
edges by functions that they do not define: atheris' copy of libFuzzer does, and must
be loaded before them, with its symbols for all to see.
"""

import asyncio
import os
import sys


def main() -> None:
    target, build = sys.argv[1:3]
    sys.path.insert(0, build)
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    import atheris
    import atheris.core_with_libfuzzer

    sys.setdlopenflags(flags)
    if target == "session":
        from tests.fuzz.session import Stage

        play = Stage(asyncio.new_event_loop).play
    else:
        from tests.fuzz.targets import TARGETS

        play = TARGETS[target]
    import cutthrough

    assert cutthrough.__file__.startswith(build), cutthrough.__file__
    atheris.Setup(sys.argv[3:], play, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
