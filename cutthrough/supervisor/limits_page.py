"""The supervisor's side of the page on which all workers count against the limits.

Each child is a holder on the page, by the number of its counters page: a slot may have
several children at a time, and the counts of each stand until it is reaped. The first
holder is the fleet: the use of limits in other programs (redis_fleet.py).
"""

import asyncio
import errno
import os
import secrets
from typing import TYPE_CHECKING

from cutthrough.generation.generation import Generation
from cutthrough.process.fleet_state import FleetState

if TYPE_CHECKING:
    from cutthrough.policy.remote_usage import RemoteUsage
    from cutthrough.supervisor.redis_fleet import RedisFleet

# Holders for each worker at the start, and further ones. A reload may add workers, and
# each worker may have an old one beside it that drains
HOLDERS, MORE_HOLDERS = 3, 16
# The children's first holder; holder 0 is the fleet
FIRST_HOLDER = 1


class LimitsPage:
    """The page, from `open` to `close`."""

    def __init__(self) -> None:
        self.fd = -1
        self._holders = 0
        self._remote_usage: RemoteUsage | None = None
        # One for the program, not for a generation: today's use is counted by this name
        self._instance = secrets.token_hex(8)
        self._fleet: RedisFleet | None = None
        self._leaving: asyncio.Task[None] | None = None

    def open(self, workers: int) -> None:
        """Makes the page. Raises OSError."""
        # Imported here, so that importing the supervisor loads no compiled module
        from cutthrough.policy.remote_usage import RemoteUsage
        from cutthrough.policy.shared_table import create

        self._holders = HOLDERS * workers + MORE_HOLDERS
        self.fd = os.memfd_create("cutthrough-limits", os.MFD_CLOEXEC)
        self._remote_usage = RemoteUsage(create(FIRST_HOLDER + self._holders, self.fd))

    @property
    def capacity(self) -> int:
        """The number of worker processes that the page has room for."""
        return self._holders

    def check(self, holder: int) -> None:
        """Raises OSError if the page has no room for this holder."""
        if holder >= self._holders:
            raise OSError(errno.ENOSPC, f"the shared page of limits has room for "
                          f"{self._holders} processes; restart the program to run more "
                          "workers")

    def holder(self, page: int) -> int:
        """The holder number of the child with this counters page."""
        return FIRST_HOLDER + page

    def reap(self, holder: int) -> None:
        """Releases the counts of this child, which is gone."""
        if self._remote_usage is not None:
            self._remote_usage.reap(FIRST_HOLDER + holder)

    def commit(self, generation: Generation) -> None:
        """Joins the fleet that this generation configures, with its users."""
        assert self._remote_usage is not None
        config = generation.config
        names = {name for name in (*generation.policy.users, config.user) if name}
        if self._fleet is not None and self._fleet.is_configured_by(config):
            self._fleet.set_users(names)
            return
        old, self._fleet = self._fleet, None
        if config.fleet_url:
            from cutthrough.supervisor.redis_fleet import RedisFleet

            self._fleet = RedisFleet(config, self._remote_usage, self._instance)
            self._fleet.set_users(names)
        if old is not None or self._fleet is not None:
            before = self._leaving
            self._leaving = asyncio.get_running_loop().create_task(
                _change(before, old, self._fleet))

    def fleet_state(self) -> FleetState | None:
        """The state of the fleet; None: none is configured."""
        return self._fleet.state() if self._fleet is not None else None

    async def leave(self) -> None:
        """Leaves the fleet, if there is one."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None or self._leaving is not None:
            await _change(self._leaving, fleet, None)
            self._leaving = None

    def close(self) -> None:
        self._remote_usage = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


async def _change(before: "asyncio.Task[None] | None", old: "RedisFleet | None",
                  new: "RedisFleet | None") -> None:
    """Leaves the old fleet, then joins the new one: both use the same instance name."""
    if before is not None:
        await before
    if old is not None:
        await old.leave()
    if new is not None:
        new.start()
