"""State as bytes: everything comes back as it was, and equal things give equal bytes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import FunctionError
from lockstep.keyed.codec import VERSION, decode, encode, time_us, utc_time

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 200), max_value=1 << 200),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
    st.datetimes().map(lambda at: at.replace(fold=0)),
)
KEYS = st.one_of(st.integers(), st.text(), st.tuples(st.text(), st.integers()), st.dates())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


def _typed(value: Any) -> Any:
    """A form in which True is not 1 and (1,) is not [1]."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [_typed(item) for item in value]
    if isinstance(value, dict):
        return "dict", [(_typed(key), _typed(item)) for key, item in value.items()]
    return type(value).__name__, repr(value)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_what_is_kept_comes_back_as_it_was_types_and_order_included(value: Any) -> None:
    data = encode(value)
    assert _typed(decode(data)) == _typed(value)
    assert encode(decode(data)) == data
    assert data[0] == VERSION


def test_a_time_with_another_offset_comes_back_as_the_same_instant() -> None:
    there = datetime(2026, 3, 29, 3, 30, tzinfo=timezone(timedelta(hours=2)))
    assert decode(encode(there)) == there
    assert decode(encode(there)).utcoffset() == timedelta(0)
    assert utc_time(time_us(there)) == there


class Pair(NamedTuple):
    left: int
    right: str


def test_kinds_of_plain_values_come_back_plain() -> None:
    assert decode(encode(Pair(1, "a"))) == (1, "a")
    assert type(decode(encode(Pair(1, "a")))) is tuple
    assert decode(encode(bytearray(b"ab"))) == b"ab"
    assert decode(encode([Decimal("1.50"), date(2026, 1, 1)])) == [Decimal("1.50"), date(2026, 1, 1)]
    assert str(decode(encode(Decimal("1.50")))) == "1.50"


@pytest.mark.parametrize("value", [{1, 2}, object(), [lambda: 1], {"inside": [{"deep": {3}}]}])
def test_what_is_no_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(FunctionError) as caught:
        encode(value)
    assert caught.value.code == "LS0311"


def test_bytes_of_another_format_are_not_read() -> None:
    with pytest.raises(AssertionError, match="format 9"):
        decode(b"\x09\x90")
