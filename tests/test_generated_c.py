"""The C that Cython has made of this tree: what it hides from its reader."""

import re
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
PACKAGE = TREE / "cutthrough"


def generated() -> list[Path]:
    return [TREE / "build/c" / file.relative_to(TREE).with_suffix(".c")
            for file in PACKAGE.rglob("*.pyx")]


def test_every_attribute_of_a_typed_object_is_declared() -> None:
    """Cython compiles an attribute that the class lacks to a lookup by its name, which
    fails while the program runs. Names for Python are `def`, `readonly` or `public`."""
    by_name = re.compile(
        r"[GS]etAttrStr\(\(\(PyObject \*?\)__pyx_v[^,]*, [^)]*__pyx_n_u_(\w+)")
    sources = "".join(file.read_text() for pattern in ("*.pyx", "*.pxd")
                      for file in PACKAGE.rglob(pattern))
    asked = {name for file in generated() for name in by_name.findall(file.read_text())}
    asked -= {"base", "memview", "size"}    # of the memory views that Cython adds
    assert len(asked) > 5
    public = set(re.findall(r"^ +(?:cp)?def _?(\w+)", sources, re.M))
    public |= set(re.findall(r"cdef (?:readonly|public) [^#\n]*?(\w+) *(?:#.*)?$",
                             sources, re.M))
    undeclared = asked - public
    assert not undeclared


def test_no_array_of_c_is_copied_over_a_pointers_target() -> None:
    """Cython compiles `S(array, n)`, for a struct whose first field is a pointer, to a
    memcpy into what the field pointed to before. `&array[0]` is the pointer."""
    copied = re.compile(r"memcpy\(__pyx_t_\d+\.\w+, ")
    assert not [file for file in generated() if copied.search(file.read_text())]


#: Functions that can tell their caller nothing of an exception: Python prints it, and
#: the caller goes on with a zero. PLAIN make no object and call no Python, so they need
#: no memory: Cython writes an exception for each attribute, in case that its object has
#: another type. CATCHING handle what they raise, or their zero is safe.
PLAIN = frozenset("""
    exchange.heads.Names.behind exchange.search.has_part net.tls.context.on_status
    net.tls.leaves.read_address policy.known.Known._tag_of policy.ledger.day_bytes_of
    policy.limits.Limiter._claim policy.limits.Limiter.change
    policy.limits.Limiter.charge
    session.judge.authorize.fill_prints session.judge.source.hash_of
    session.model.client.leave_parent session.model.client.refusal_of
    session.model.destination.is_key session.stages.pac.asks_for_pac
    session.transfer.filtering.is_held session.transfer.filtering.shown_of
    session.transfer.messages.has_messages session.transfer.peek.passes_by_hook
    session.ways.origins.praise_server session.ways.parents.names_destination
    session.ways.parents.set_source_aside tape.end_record.point
    tape.ended.fill_bodies tape.ended.fill_in""".split())
CATCHING = frozenset("""
    net.bridge.taken_in_front net.poller.Poller.contain net.poller.expire
    net.poller.on_events net.tls.context.on_server_name net.tls.context.read_name
    net.tls.wire.speak_for""".split())


def test_no_other_function_loses_an_exception() -> None:
    """The log once went on with a line that there was no memory for."""
    lost = re.compile(r'__Pyx_WriteUnraisable\("cutthrough\.([\w.]+)"')
    losing = {name for file in generated() for name in lost.findall(file.read_text())}
    assert losing <= PLAIN | CATCHING
    assert {"net.poller.expire"} <= losing


def test_no_number_of_c_is_compared_as_pythons() -> None:
    """A literal of more than 31 bits is Python's, and so is each comparison with it:
    `value <= 0xffffffff` cost each note of the flight recorder 100 instructions.
    UINT32_MAX, or a cast, is C's."""
    compared = re.compile(r"__Pyx_PyObject_Compare\w+\([^;]*__pyx_int_(?:neg_)?\d{10,}")
    assert not [file for file in generated() if compared.search(file.read_text())]
