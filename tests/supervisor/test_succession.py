"""What drains for a new program, and files that the old program cannot use."""

from unittest import mock

import msgspec
import pytest

from cutthrough.config.config import Config, ConfigError
from cutthrough.generation.checks import complete
from cutthrough.generation.generation import Generation
from cutthrough.policy.source import Policy
from cutthrough.process.channel import Commit, Prepare
from cutthrough.supervisor.reload import Reloads
from cutthrough.supervisor.succession import Succession

CONFIG = Config(user="me", password="secret", via="name")


@pytest.fixture
def program():
    program = mock.Mock(is_serving=False, is_ending=True, children={
        1: mock.Mock(send=mock.Mock(return_value=True))})
    program.generation = complete(Generation(3, CONFIG, Policy()))
    program.sources.blame.side_effect = lambda error: error
    program.reloads.explain = lambda error: Reloads.explain(program.reloads, error)
    program.reloads.check_user = lambda config: Reloads.check_user(
        program.reloads, config)
    program.reloads._program = program
    return program


@pytest.fixture
def succession(program):
    succession = Succession(program, mock.Mock(), mock.Mock())
    succession.successor = mock.Mock()
    succession.successor.process.pid = 77
    return succession


def test_what_drains_follows_the_new_program(program, succession, capfd):
    program.sources.read.return_value = (
        msgspec.structs.replace(CONFIG, idle_timeout=7.0), Policy())
    succession.follow()
    (child,) = program.children.values()
    assert [call.args[0] for call in child.send.call_args_list] == [
        Prepare(4), Commit(4)]
    said = capfd.readouterr().err
    assert "what drains here follows pid 77: idle_timeout 15m -> 7s\n" in said
    assert program.generation.number == 4
    succession.follow()
    assert child.send.call_count == 2, "nothing has changed since"


@pytest.mark.parametrize(("answer", "reason"), [
    (ConfigError("a.toml", "newer_key", "is no option"), "a.toml: newer_key: is no"),
    (FileNotFoundError(2, "No such file", "a.toml"), "a.toml: No such file"),
    (RuntimeError(), "the configuration cannot be read: RuntimeError"),
    ([(Config(), Policy())], "no user is configured any more"),     # R29
], ids=["mistake", "absent", "fault", "empty"])
def test_files_that_the_old_program_cannot_use_change_nothing(
        program, succession, capfd, answer, reason):
    program.sources.read.side_effect = answer
    succession.follow()
    said = capfd.readouterr().err
    assert "keeps the rules of generation 3, and DELETE /connections cuts it" in said
    assert reason in said
    (child,) = program.children.values()
    assert not child.send.called and program.generation.number == 3
