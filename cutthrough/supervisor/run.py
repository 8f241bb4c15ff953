"""The start of the program, with sockets of systemd, of its predecessor, or its own."""

import asyncio
import signal

from cutthrough.generation.generation import Sources
from cutthrough.net.listener import bound_address
from cutthrough.process.environment import EARLY
from cutthrough.process.systemd import take_listeners
from cutthrough.supervisor.bundle_start import provide
from cutthrough.supervisor.children import Child
from cutthrough.supervisor.early_worker import EarlyWorker
from cutthrough.supervisor.listeners import Listeners
from cutthrough.supervisor.supervisor import Supervisor
from cutthrough.supervisor.upgrade import Predecessor


def run(sources: Sources, early: EarlyWorker | None = None) -> int:
    """Runs the program; returns its exit status. `early` becomes the first worker.
    Raises ConfigError, PolicyError and OSError if something cannot be used or opened.
    """
    Child.early = early
    try:
        return _run(sources)
    finally:
        if Child.early is not None:          # no slot has taken it
            Child.early.end()
            Child.early = None


def _run(sources: Sources) -> int:
    # Blocked until there are handlers: a signal to the whole service may come early
    signal.pthread_sigmask(signal.SIG_BLOCK, EARLY)
    predecessor = Predecessor.find()
    adopted = predecessor.take_listeners() if predecessor else take_listeners()
    activated = predecessor.activated if predecessor else bool(adopted)
    if activated:
        sources.listen = tuple(dict.fromkeys(map(bound_address, adopted)))
    sources.on_bundle = provide
    config, policy = sources.read()
    sources.on_bundle = None                 # a reload reads the one that is current
    if predecessor is not None:
        predecessor.check(config, policy)
    supervisor = Supervisor(config, policy, sources,
                            Listeners(adopted, activated), predecessor)
    return asyncio.run(supervisor.run())
