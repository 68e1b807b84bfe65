"""What schemathesis cannot know: which text is JSON. It loads this file by itself, see test_openapi."""

import json

import schemathesis
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('aé"\\\n锁', max_size=20),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inside, max_size=3)
    ),
    max_leaves=5,
)

schemathesis.openapi.format("json", VALUES.map(json.dumps))
