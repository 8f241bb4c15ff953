"""What the translation leaves out, in a small tree of its own."""

from pathlib import Path

import pytest

from tests.support.small_tree import ROOM, built, make_tree, mode_of


@pytest.mark.slow
def test_a_module_gets_the_inline_functions_that_it_calls(tmp_path: Path) -> None:
    """It had those of every .pxd that it cimports: a third of a small module's C."""
    small = make_tree(tmp_path)
    package = small / "cutthrough"
    (package / "far.pxd").write_text("cdef int tripled(int n)\n"
                                     "cdef int halved(int n)\n")
    (package / "far.pyx").write_text("cdef int tripled(int n):\n    return 3 * n\n"
                                     "cdef int halved(int n):\n    return n // 2\n")
    (package / "number.pxd").write_text("""\
from cutthrough.far cimport halved, tripled
cdef enum:
    NUMBER = 1
cdef inline int direct(int n):
    return indirect(n) + 1
cdef inline int indirect(int n):
    return tripled(n)
cdef inline int superfluous(int n):
    return halved(n)
""")
    (package / "room.pyx").write_text(
        ROOM.replace("cimport NUMBER", "cimport NUMBER, direct").replace(
            "OPTIMISED, NUMBER", "OPTIMISED, direct(2)"))
    built(small, "debug")
    assert mode_of(small)[2] == 7
    made = (small / "build/c/cutthrough/room.c").read_text()
    names = ("direct", "indirect", "tripled", "superfluous", "halved")
    assert [f"_{name}(" in made or f"_{name})" in made for name in names] == [
        True, True, True, False, False]
