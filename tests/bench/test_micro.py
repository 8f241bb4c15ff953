"""`python -m bench micro`: the cost of one turn of a loop."""

import pytest

from bench import micro
from bench.children import BenchError
from tests.bench.servers import needs_compiler


@needs_compiler
def test_the_micro_benches_find_their_registry() -> None:
    found = {bench.name for bench in micro.find_benches()}
    assert found >= {
        "head-request", "head-request-httptools", "rewrite-request", "chunks-4k",
        "log-squid", "timer-move",
    }  # fmt: skip


@needs_compiler
def test_a_micro_bench_that_there_is_not_is_refused() -> None:
    """`bench micro policy`, as the documents have it, printed and did nothing."""
    with pytest.raises(BenchError, match=r"^polizei: none of policy, "):
        micro.run_micro(["polizei"])


@needs_compiler
def test_a_micro_bench_says_what_one_turn_costs() -> None:
    (row,) = micro.run_micro(["timer-move"], repetitions=2)
    assert 0 < float(str(row["ns"])) < 1000
