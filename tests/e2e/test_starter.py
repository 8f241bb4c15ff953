"""A fork of tests.support.starter is what the interpreter makes of a command line."""

import contextlib
import json
import os
import re
from collections import Counter
from pathlib import Path

from tests.e2e.conftest import with_policy
from tests.support.captures import writer
from tests.support.network import own_network
from tests.support.proxy import Proxy
from tests.support.sanitized import SANITIZED
from tests.support.starter import MOST_SHOWN, Started
from tests.support.wait import wait_until

RULE = '[[rules]]\naction = "allow"\n'
# What a worker finds when it imports a module of the operator
HOOK = """
    import ctypes, gc, json, os, random, re, resource, signal, socket, sys, threading

    FOLDER = os.path.dirname(__file__)

    def is_mapped(before, size):
        '''Is such a block apart from the heap, when a larger one was freed?'''
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        libc.free(libc.malloc(before))
        block = libc.malloc(size)
        flags = ctypes.c_size_t.from_address(block - 8).value
        libc.free(block)
        return bool(flags & 2)              # IS_MMAPPED of glibc's malloc.c

    def find():
        descriptors = os.listdir("/proc/self/fd")
        with open("/proc/self/status") as file:
            signals = re.findall(r"^(?:Sig|Shd)\\w+:\\t(\\w+)", file.read(), re.M)
        return {
            "environ": dict(os.environ), "path": sys.path, "folder": os.getcwd(),
            "argv": [sys.argv[0], *sys.orig_argv[:-1]],
            # 32 and 33 are the C library's own: its posix_spawn has them ignored
            "signals": [int(mask, 16) & ~(3 << 31) for mask in signals[1:]],
            "handlers": [re.sub(" at .*", "", repr(signal.getsignal(number)))
                         for number in range(1, 32)],
            "collector": [gc.isenabled(), gc.get_threshold(), threading.active_count()],
            "limits": [resource.getrlimit(n) for n in range(16)],
            "standard": [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)],
            "descriptors": sorted(
                re.sub(r"\\d+", "", os.readlink(f"/proc/self/fd/{fd}"))
                for fd in descriptors if os.path.exists(f"/proc/self/fd/{fd}")),
            "is_mapped": is_mapped(2 << 20, 1 << 20),
            "drawn": random.getrandbits(64)}

    if "cutthrough.worker.main" in sys.orig_argv:
        with open(f"{FOLDER}/{os.getpid()}.new", "w") as file:
            json.dump(find(), file)
        os.rename(file.name, f"{FOLDER}/{os.getpid()}")

    async def decide(request): ...
"""


def find(folder, loop_name, executed):
    """What the early worker finds."""
    with with_policy(folder, loop_name, RULE, hook=HOOK, executed=executed) as proxy:
        assert isinstance(proxy.process, Started) != executed
        path = folder / str(proxy.worker.pid)
        wait_until(path.exists, proxy.stderr)
        return json.loads(path.read_text())


def test_a_forked_worker_is_as_an_executed_one(directory, loop_name):
    """Environment, arguments, signals, limits, descriptors, the allocator's bound; only
    random numbers are no other's."""
    folder = directory("here")
    executed, *forked = (find(folder, loop_name, way) for way in (True, False, False))
    assert len({each.pop("drawn") for each in (executed, *forked)}) == 3
    assert executed["is_mapped"] or SANITIZED
    for each in forked:
        assert {name: state for name, state in each.items()
                if state != executed[name]} == {}


def test_a_fork_is_in_the_network_of_who_starts_it(directory, loop_name):
    with own_network(), Proxy(directory("inside"), loop=loop_name) as proxy:
        assert isinstance(proxy.process, Started)
        for pid in (proxy.process.pid, proxy.worker.pid):
            assert os.stat(f"/proc/{pid}/ns/net") == os.stat("/proc/thread-self/ns/net")


def look(pid: int) -> dict[str, object]:
    """What can be seen of a worker from outside."""
    process = Path(f"/proc/{pid}")
    links = []
    for fd in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):    # closed since it was listed
            links.append(os.readlink(fd))
    return {
        "signals": re.findall(r"^(?:Sig[BIC]|Shd)\w+:\t(\w+)",
                              (process / "status").read_text(), re.M),
        "limits": (process / "limits").read_text(),
        "folder": os.readlink(process / "cwd"),
        "standard": os.readlink(process / "fd/0"),
        "descriptors": Counter(re.sub(r"\d+", "", link) for link in links)}


def is_fork(pid: int) -> bool:
    """The command line of a fork has the starter's length."""
    return len(Path(f"/proc/{pid}/cmdline").read_bytes()) > MOST_SHOWN


def with_a_dead_one(proxy: Proxy) -> list[int]:
    """The second worker, and that in the place of the first, which has died."""
    first, second = proxy.workers()
    first.kill()
    (third,) = wait_until(lambda: [worker for worker in proxy.workers()
                                   if worker not in (first, second)], proxy.stderr)
    return [second.pid, third.pid]


def test_a_forked_later_worker_is_as_an_executed_one(directory, loop_name):
    with (Proxy(directory("later"), "--workers", "2", loop=loop_name,
                executed=True) as executed,
          Proxy(directory("later"), "--workers", "2", loop=loop_name) as forked):
        assert not is_fork(executed.workers()[1].pid)
        assert is_fork(forked.workers()[1].pid)
        for mine, theirs in zip(*map(with_a_dead_one, (forked, executed)), strict=True):
            wait_until(lambda pids=(mine, theirs): look(pids[0]) == look(pids[1]),
                       lambda pids=(mine, theirs): str(list(map(look, pids))))


def test_a_forked_writer_is_as_an_executed_one(directory, loop_name):
    folders = [directory("writer") for _ in range(2)]
    captured = '[[rules]]\naction = "allow"\ncapture = "head"\n'
    with contextlib.ExitStack() as stack:
        executed, forked = [stack.enter_context(with_policy(
            folder, loop_name, captured, f'capture_file = "{folder / "flows.db"}"\n',
            executed=folder is folders[0])) for folder in folders]
        pids = [writer(proxy).pid for proxy in (executed, forked)]
        assert [is_fork(pid) for pid in pids] == [False, True]
        wait_until(lambda: look(pids[0]) == look(pids[1]),
                   lambda: str(list(map(look, pids))))
