"""`python -m bench fleet --postgres`: all rows that processes wrote are there."""

import pytest

from bench import fleet_postgres
from tests.support.postgres import PROGRAMS


# `make test` installs it: without it, somebody runs this file alone
@pytest.mark.skipif(PROGRAMS is None, reason="postgresql is not installed")
def test_rows_of_two_processes_are_counted(capsys):
    assert fleet_postgres.run(2, 0.5) == 0
    head, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[0] == "writers"
    assert [line[:2] for line in lines] == [
        ["1", "0"], ["2", "0"], ["1", "10000"], ["2", "10000"]]
    for line in lines:
        rate, part, median, longest, unhindered, most, failed = map(float, line[2:])
        assert rate > 0 and part > 0 and 0 < median <= longest and failed == 0
        assert 0 <= unhindered <= most <= longest
