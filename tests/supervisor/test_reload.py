"""Which reload gives way to which."""

import asyncio
from unittest import mock

import msgspec
import pytest

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.settings import from_options
from cutthrough.generation.checks import complete
from cutthrough.generation.generation import Generation
from cutthrough.policy.source import Policy
from cutthrough.supervisor import reload
from cutthrough.supervisor.reload import Reloads


def config(**options: object) -> Config:
    return from_options(None, user="u", password="secret", via="proxy",
                        listen="127.0.0.1:0", **options)


@pytest.mark.parametrize(("content", "gives_way"), [
    ((config(workers=3), Policy()), False), ((config(workers=2), Policy()), True),
    ((config(workers=3), Policy(source="policy.toml")), True),
    (ConfigError("proxy.toml", "workers", "is a mistake"), False)])
def test_an_attempt_gives_way_to_a_reload_of_other_files_alone(
        monkeypatch, content, gives_way):
    """If requests came faster than workers start, no reload was ever in force."""
    monkeypatch.setattr(reload, "LOOK_S", 0.0)
    present = complete(Generation(1, config(workers=1), Policy()))

    async def run():
        second, refused = asyncio.Event(), asyncio.Event()
        program = mock.Mock(generation=present, successor=None, is_serving=True,
                            is_ending=False, children={}, slots=[])
        reloads = Reloads(program)
        attempt = mock.Mock(is_overdue=True)
        attempt.basis.generation = complete(msgspec.structs.replace(
            present, number=2, config=config(workers=3)))
        reloads._attempt = attempt
        attempt.refuse.side_effect = refused.set

        def read():
            if program.sources.read.call_count > 1:
                second.set()
            if isinstance(content, Exception):
                raise content
            return content
        program.sources.read.side_effect = read
        reloads.request()
        await asyncio.wait_for((refused if gives_way else second).wait(), 60)
        assert attempt.refuse.called == gives_way
    asyncio.run(run())
