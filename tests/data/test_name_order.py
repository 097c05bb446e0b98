"""The fast order of names is that of their UTF-8 bytes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe.data.columns import text_array
from pathe.data.name_order import name_order, sorted_codes

text = st.text(alphabet="a\0b\x7fé\ud7ff\U0001f600", max_size=12)


@settings(max_examples=150, deadline=None)
@given(prefix=text, names=st.lists(text, max_size=40), start=st.integers(0, 3))
def test_names_are_sorted_by_their_bytes(prefix, names, start):
    array = text_array([prefix + name for name in names])[start:]
    order = name_order(array)
    expected = sorted(array.to_pylist(), key=str.encode)
    assert array.take(pa.array(order)).to_pylist() == expected
    assert sorted(order.tolist()) == list(range(len(array)))


def test_codes_are_positions_among_the_sorted_names():
    codes, names = sorted_codes(text_array(["b", "a", "b", "c", "a"]).dictionary_encode())
    assert names.to_pylist() == ["a", "b", "c"]
    assert codes.tolist() == [1, 0, 1, 2, 0]
