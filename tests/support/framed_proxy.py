"""The program with the transport of framed.pyx on both sides of every connection.

    python -m tests.support.framed_proxy serve …      as `python -m cutthrough serve …`
"""

import sys


def serve(arguments: list[str]) -> int:
    from cutthrough.cli.main import main
    from cutthrough.supervisor import early_worker

    early_worker.COMMAND = (
        *early_worker.COMMAND[:-1], "tests.support.framed_proxy", "worker")
    return main(arguments)


def work(fd: int) -> int:
    from cutthrough.worker import main, worker
    from tests.doors import framed

    plain = worker.ConnectionSink
    worker.ConnectionSink = lambda context, *given, **named: framed.dress(
        context, plain(context, *given, **named))
    return main.main(fd)


if __name__ == "__main__":
    sys.exit(work(int(sys.argv[2])) if sys.argv[1] == "worker" else serve(sys.argv[1:]))
