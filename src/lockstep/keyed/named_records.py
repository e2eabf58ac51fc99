"""Records and keys as a process function sees them: tuples whose fields have the columns' names."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar


class NamedRecord(tuple[Any, ...]):
    """One record: columns as attributes or items, read-only. Made for millions of records: a tuple, and nothing more.

    >>> Login = record_type(["user", "ok"])
    >>> login = Login(("ann", False))
    >>> login.user, login["ok"], login.asdict(), {**login}
    ('ann', False, {'user': 'ann', 'ok': False}, {'user': 'ann', 'ok': False})
    """

    __slots__ = ()
    _names: tuple[str, ...] = ()
    _places: ClassVar[dict[str, int]] = {}

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no column {name!r}; there are: {', '.join(self._names)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a record is read-only: emit a new one with ctx.emit(...)")

    def __getitem__(self, name: Any) -> Any:
        place = self._places.get(name)
        if place is None:
            raise KeyError(f"no column {name!r}; there are: {', '.join(self._names)}")
        return tuple.__getitem__(self, place)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._names)

    def keys(self) -> Iterator[str]:
        """The column names, so that ``{**record}`` works."""
        return iter(self._names)

    def asdict(self) -> dict[str, Any]:
        """A plain dict of the record."""
        return dict(zip(self._names, tuple.__iter__(self), strict=True))

    def __repr__(self) -> str:
        values = zip(self._names, tuple.__iter__(self), strict=True)
        return "Record(" + ", ".join(f"{name}={value!r}" for name, value in values) + ")"


class NamedKey(tuple[Any, ...]):
    """The key of a turn: a tuple whose parts have names too.

    >>> key = key_type(["user", "country"])(("ann", "fi"))
    >>> key.user, key[1], tuple(key)
    ('ann', 'fi', ('ann', 'fi'))
    """

    __slots__ = ()
    _names: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no part {name!r} in the key; there are: {', '.join(self._names) or 'none'}")

    def __repr__(self) -> str:
        return "Key(" + ", ".join(f"{name}={value!r}" for name, value in zip(self._names, self, strict=True)) + ")"


def record_type(names: Sequence[str]) -> type[NamedRecord]:
    """The class of records with these columns."""
    own = {"__slots__": (), "_names": tuple(names), "_places": {name: place for place, name in enumerate(names)}}
    return type("Record", (NamedRecord,), {**_fields(names), **own})


def key_type(names: Sequence[str]) -> type[NamedKey]:
    """The class of keys with these parts."""
    return type("Key", (NamedKey,), {**_fields(names), "__slots__": (), "_names": tuple(names)})


def _fields(names: Sequence[str]) -> dict[str, Any]:
    """Attributes that read a place of a tuple as fast as Python can: those of a named tuple. Any name will do."""
    # The class itself is held: its __dict__ alone is emptied if the garbage collector finds the class meanwhile.
    quick = namedtuple("Places", [f"place_{place}" for place in range(len(names))])  # type: ignore[misc]
    return {name: vars(quick)[f"place_{place}"] for place, name in enumerate(names)}
