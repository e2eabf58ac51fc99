"""How Spark orders values, for Python's: nulls first, NaN last, arrays and structs element by element."""

from __future__ import annotations

from math import isnan
from typing import Any

_AFTER_ALL_NUMBERS = (1, 0.0)


def order_key(value: Any) -> Any:
    """A key that compares as Spark compares the values themselves (of one type).

    >>> sorted([float("nan"), 1.0, float("-inf")], key=order_key)
    [-inf, 1.0, nan]
    >>> sorted([{"a": 2, "b": None}, {"a": 1, "b": 5}, {"a": 2, "b": 0}], key=order_key)
    [{'a': 1, 'b': 5}, {'a': 2, 'b': None}, {'a': 2, 'b': 0}]
    """
    if isinstance(value, float):
        return _AFTER_ALL_NUMBERS if isnan(value) else (0, value)
    if isinstance(value, list | tuple):
        return tuple(_nested(item) for item in value)
    if isinstance(value, dict):
        return tuple(_nested(item) for item in value.values())
    return value


def _nested(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, order_key(value))
