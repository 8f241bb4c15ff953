"""The proxy inside a program: it serves while a function runs, then it drains.

    python docs/examples/embedded.py curl -sI https://example.com/

runs that command with the proxy in its environment, and prints each of its requests on
a line.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence

import cutthrough


async def run(command: Sequence[str]) -> int:
    """Runs `command` behind a proxy of its own; returns the exit status."""
    readable, writable = os.pipe()
    proxy = cutthrough.serve(
        user="me", password=os.urandom(8).hex(), idle_timeout=60,
        access_log=f"/dev/fd/{writable}", access_log_format="json")
    async with proxy:
        os.close(writable)
        printing = asyncio.create_task(print_events(readable))
        environ = {**os.environ, "http_proxy": proxy.url, "https_proxy": proxy.url}
        process = await asyncio.create_subprocess_exec(*command, env=environ)
        status = await process.wait()
        await proxy.drain(5)
    await printing
    return status


async def print_events(log: int) -> None:
    """Prints each line of the access log that comes through this pipe."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(log, "rb"))
    async for line in lines:
        event = json.loads(line)
        print(event["method"], event["host"], event["port"], event["reason"],
              file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: embedded.py COMMAND …")
    sys.exit(asyncio.run(run(sys.argv[1:])))
