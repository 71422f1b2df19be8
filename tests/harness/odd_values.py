"""Strategy of Hypothesis for values that data sets return by mistake, and for correct ones."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just(1j)),
    st.sampled_from([np.int8(1), np.float32(2), np.bool_(1), np.str_("a"), object(), Ellipsis]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=2),
    ),
    max_leaves=8,
)
ELEMENTS = st.one_of(
    VALUES,
    st.dictionaries(st.sampled_from(["a", "b", "", 3]), VALUES, max_size=3),
    st.tuples(st.integers(-300, 300), st.lists(st.integers(0, 9), max_size=2)),
    st.builds(lambda shape: np.ones(shape, np.uint8), st.tuples(st.integers(0, 2), st.just(2))),
)
