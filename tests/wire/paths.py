"""Paths of URLs, as hypothesis makes them."""

from hypothesis import strategies as st

UNITS = st.sampled_from((
    b"/", b"/", b"a", b"b1", b".", b"..", b";", b";v=1", b":", b"*", b"{", b"\\",
    b"%", b"%2e", b"%2E", b"%2f", b"%61", b"%3B", b"%3a", b"%25", b"2", b"6", b"%00",
    b"%c3%a9", b"%C0", b"%e0", b"%80", b"%A0", b"%F0", b"?"))
PATHS = st.lists(UNITS, max_size=8).map(lambda units: b"/" + b"".join(units))
