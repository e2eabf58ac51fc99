"""What a Python function in a step receives for one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Record:
    """One record: columns as attributes or items, read-only.

    >>> record = Record({"user": "ann", "ok": False})
    >>> record.user, record["ok"], record.asdict()
    ('ann', False, {'user': 'ann', 'ok': False})
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}; there are: {', '.join(self._values)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a record is read-only: return a new one, e.g. {**record.asdict(), 'x': 1}")

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(f"no column {name!r}; there are: {', '.join(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def keys(self) -> Iterator[str]:
        """The column names, so that ``{**record}`` works."""
        return iter(self._values)

    def asdict(self) -> dict[str, Any]:
        """A plain dict of the record."""
        return dict(self._values)

    def __repr__(self) -> str:
        return "Record(" + ", ".join(f"{name}={value!r}" for name, value in self._values.items()) + ")"
