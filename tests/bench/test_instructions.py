"""`make instructions`: which file of valgrind counts, and what is worse."""

from bench.instructions import compare, read_total

FILE = """# callgrind format
version: 1
cmd:  /usr/bin/python3 -P -m {module} 5

events: Ir
totals: 1313000000
"""


def test_a_worker_is_counted_and_its_supervisor_is_not(tmp_path):
    worker, supervisor = tmp_path / "calls.2", tmp_path / "calls.1"
    worker.write_text(FILE.format(module="cutthrough.worker.main"))
    supervisor.write_text(FILE.format(module="cutthrough serve"))
    assert (read_total(worker), read_total(supervisor)) == (1_313_000_000, 0)


def test_a_load_is_compared_with_what_is_stored_of_it():
    rows = [{"proxy": "full", "load": load, "instructions": 1030}
            for load in ("ping", "connect")]
    ping, connect = compare(rows, {("full", "ping"): 1000, ("default", "connect"): 1})
    assert (ping["stored"], ping["ratio"]) == (1000, 1.03)
    assert (connect["stored"], connect["ratio"]) == (1030, 1.0)
