"""One target under libFuzzer: python -m tests.fuzz.child TARGET BUILD NAME FLAG…

BUILD is the directory of the `fuzz` build; NAME and the flags are for libFuzzer, which
starts NAME again when it needs a second process. The modules of that build call
functions of libFuzzer and AddressSanitizer that they do not define: atheris'
asan_with_fuzzer.so does, and is preloaded.
"""

import asyncio
import sys

PYTHON = {
    "names": ["cutthrough.net.dns.validated"],
    "body": ["cutthrough.capture.views", "cutthrough.capture.graphql",
             "cutthrough.capture.markup", "cutthrough.exchange"],
    "imported": ["cutthrough.exchange.formats", "cutthrough.recording.formats"]}


def main() -> None:
    target, build = sys.argv[1:3]
    sys.path.insert(0, build)
    import atheris

    if target == "session":
        from tests.fuzz.session import Stage

        play = Stage(asyncio.new_event_loop).play
    else:
        # Of these modules each branch counts; the others are C, or much used by all
        with atheris.instrument_imports(include=PYTHON.get(target, [])):
            from tests.fuzz.targets import TARGETS

        play = TARGETS[target]
    import cutthrough

    assert cutthrough.__file__.startswith(build), cutthrough.__file__
    atheris.Setup(sys.argv[3:], play, internal_libfuzzer=False)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
