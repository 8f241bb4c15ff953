"""Documents of JSON, as hypothesis makes them."""

from hypothesis import strategies as st

SCALARS = (st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from((0.5, -1.5))
           | st.text('ab"\\[]{},:é', max_size=3))
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | (
    st.dictionaries(st.text('ab"\\,:[', max_size=2), inner, max_size=4)), max_leaves=12)
