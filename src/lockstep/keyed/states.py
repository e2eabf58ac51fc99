"""The state that a process function declares: values, lists, maps and reductions, for each key or broadcast to all.

Declared on the class, used on the instance: ``self.fails`` is the state of the key whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import pyarrow as pa

from lockstep.durations import Duration, duration_text, duration_us
from lockstep.errors import FunctionError, PlanError
from lockstep.keyed.functions import UNFIT, shown
from lockstep.plan.schema import parse_schema
from lockstep.store.types import arrow_type

_QUICK: dict[str, type] = {
    "string": str,
    "boolean": bool,
    "double": float,
    "binary": bytes,
    "timestamp": datetime,
    "date": date,
}
_PYTHON_TYPES: dict[type, str] = {**{python: text for text, python in _QUICK.items()}, int: "bigint"}
"""Python's own types as Spark writes them, for states that are declared with one."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
H = TypeVar("H", bound="Handle")


class Memory:
    """What all states of a process share while a key has its turn: its data, and the epoch time."""

    __slots__ = ("changed", "data", "epoch_time_us", "expires_us", "shared", "writable")

    def __init__(self, *, shared: bool = False) -> None:
        self.data: dict[str, Any] = {}
        self.changed = False
        self.epoch_time_us = 0
        self.expires_us: int | None = None
        """When the earliest of the states written in this turn expires."""
        self.shared = shared
        """Whether it holds broadcast state, which only broadcast records may write."""
        self.writable = not shared


class State(Generic[H]):
    """A declared state. Its handles do the work; see the functions that make one."""

    kind: ClassVar[str]
    shared: ClassVar[bool] = False
    """Whether it is one for all keys, written by broadcast records."""

    def __init__(self, types: tuple[str, ...], ttl: Duration | None) -> None:
        self.name = ""
        self._types = types
        self.ttl_us = None if ttl is None else duration_us(ttl)
        if self.ttl_us is not None and self.ttl_us <= 0:
            raise PlanError(
                "LS0151", f"a state has ttl={ttl!r}", hint='a time to live is longer than nothing: ttl="1 hour".'
            )

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> H: ...
    def __get__(self, instance: object | None, owner: type) -> Self | H:
        # A bound handle lies in the instance's own dict and is found first: to come here means that there is none.
        if instance is None:
            return self
        raise FunctionError(
            "LS0316",
            f'state "{self.name}" of {owner.__name__} is used outside of a turn',
            why="there is state only while a record or a timer of a key is handled.",
            hint="use it inside on_record and on_timer; in tests, through ProcessTester.",
        )

    def describe(self) -> str:
        """The state in words; two versions of a job are compared by it."""
        ttl = "" if self.ttl_us is None else f", ttl {duration_text(self.ttl_us)}"
        return f"{self.kind} of {', '.join(self._types)}{ttl}"

    def shown(self, data: dict[str, Any], epoch_time_us: int) -> Any:
        """What is kept of it in the data of a key, for tests; None if nothing is."""
        memory = Memory()
        memory.data, memory.epoch_time_us = data, epoch_time_us
        return self.bind(memory).shown()

    def bind(self, memory: Memory) -> H:
        """A handle over the data of whichever key has its turn."""
        raise NotImplementedError


class Handle:
    """A state of the key whose turn it is."""

    __slots__ = ("_checks", "_memory", "_name", "_ttl_us")

    def __init__(self, name: str, memory: Memory, types: tuple[str, ...], ttl_us: int | None) -> None:
        self._name = name
        self._memory = memory
        self._checks = tuple(_check(name, type_text) for type_text in types)
        self._ttl_us = ttl_us

    def clear(self) -> None:
        """Forget it."""
        if self._name in self._memory.data:
            self._write_allowed()
            del self._memory.data[self._name]
            self._memory.changed = True

    def shown(self) -> Any:
        """What is kept, as plain data."""
        return self._read()

    def expire(self) -> int | None:
        """Drop what has lived long enough; when the rest will have."""
        if self._ttl_us is None or self._name not in self._memory.data:
            return None
        ends_us = int(self._memory.data[self._name][1]) + self._ttl_us
        if ends_us > self._memory.epoch_time_us:
            return ends_us
        self.clear()
        return None

    def _read(self) -> Any:
        """The stored value, None if there is none (any more)."""
        found = self._memory.data.get(self._name)
        if self._ttl_us is None or found is None:
            return found
        return found[0] if found[1] + self._ttl_us > self._memory.epoch_time_us else None

    def _write(self, value: Any) -> None:
        memory = self._memory
        if not memory.writable:
            self._write_allowed()
        memory.changed = True
        if self._ttl_us is None:
            memory.data[self._name] = value
            return
        memory.data[self._name] = [value, memory.epoch_time_us]
        self._ends(memory.epoch_time_us + self._ttl_us)

    def _ends(self, ends_us: int) -> None:
        memory = self._memory
        if memory.expires_us is None or ends_us < memory.expires_us:
            memory.expires_us = ends_us

    def _write_allowed(self) -> None:
        if self._memory.writable:
            return
        if not self._memory.shared:
            raise FunctionError(
                "LS0316",
                f'state "{self._name}" is written in on_broadcast',
                why="it belongs to a key, and a broadcast record has none.",
                hint="ls.broadcast_state(...) and ls.broadcast_map(...) are for what all keys share.",
            )
        raise FunctionError(
            "LS0315",
            f'broadcast state "{self._name}" is written outside of on_broadcast',
            why="it is one for all keys: if each wrote to it, the parts of the job would see different values.",
            hint="write it in on_broadcast, from the records that every part sees; read it anywhere.",
        )


class ValueHandle(Handle, Generic[T]):
    """One value of the key whose turn it is."""

    __slots__ = ()

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: D) -> T | D: ...
    def get(self, default: Any = None) -> Any:
        """The value, or ``default`` if none was set."""
        found = self._memory.data.get(self._name) if self._ttl_us is None else self._read()
        return default if found is None else found

    def set(self, value: T | None) -> None:
        """Keep a value; None forgets it."""
        if value is None:
            self.clear()
            return
        self._checks[0](value)
        self._write(value)


class ListHandle(Handle, Generic[T]):
    """A list of the key whose turn it is. Iterate over it, append to it, or set it anew."""

    __slots__ = ()

    def get(self) -> list[T]:
        """A copy of it, to work with."""
        return list(self._read() or ())

    def set(self, values: Iterable[T]) -> None:
        """Keep these values instead; none of them forgets the list."""
        kept = list(values)
        for value in kept:
            self._checks[0](value)
        if kept:
            self._write(kept)
        else:
            self.clear()

    def append(self, value: T) -> None:
        """Add one at the end."""
        self._checks[0](value)
        kept = self._read()
        if kept is None:
            kept = []
        kept.append(value)
        self._write(kept)

    def __iter__(self) -> Iterator[T]:
        return iter(self._read() or ())

    def __len__(self) -> int:
        return len(self._read() or ())

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: Any) -> Any:
        return (self._read() or [])[place]


class MapHandle(Handle, Generic[K, V]):
    """A map of the key whose turn it is, used like a dict. With a time to live, each entry has its own."""

    __slots__ = ()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        found = self._stored().get(key)
        if found is None or self._ttl_us is None:
            return default if found is None else found
        return found[0] if self._lives(found) else default

    def __getitem__(self, key: K) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: K, value: V) -> None:
        self._checks[0](key)
        self._checks[1](value)
        self._write_allowed()
        memory = self._memory
        stored = memory.data.setdefault(self._name, {})
        if self._ttl_us is None:
            stored[key] = value
        else:
            stored[key] = [value, memory.epoch_time_us]
            self._ends(memory.epoch_time_us + self._ttl_us)
        memory.changed = True

    def __delitem__(self, key: K) -> None:
        stored = self._stored()
        if key in stored:
            self._write_allowed()
            del stored[key]
            self._memory.changed = True
            if not stored:
                del self._memory.data[self._name]

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[K]:
        return iter([key for key, _ in self.items()])

    def __len__(self) -> int:
        return len(self.items())

    def keys(self) -> list[K]:
        """Its keys, in the order in which they were first set."""
        return list(self)

    def values(self) -> list[V]:
        """Its values."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[K, V]]:
        """Keys and values."""
        if self._ttl_us is None:
            return list(self._stored().items())
        return [(key, found[0]) for key, found in self._stored().items() if self._lives(found)]

    def shown(self) -> Any:
        """What is kept, as a dict."""
        return dict(self.items()) or None

    def expire(self) -> int | None:
        """Drop the entries that have lived long enough; when the next will have."""
        if self._ttl_us is None:
            return None
        for key in [key for key, found in self._stored().items() if not self._lives(found)]:
            del self[key]
        return min((found[1] + self._ttl_us for found in self._stored().values()), default=None)

    def _stored(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self._memory.data.get(self._name) or {}
        return found

    def _lives(self, found: list[Any]) -> bool:
        return bool(found[1] + self._ttl_us > self._memory.epoch_time_us)


class ReducingHandle(ValueHandle[T]):
    """One value of the key whose turn it is, that others are added to."""

    __slots__ = ("_function",)
    _function: Callable[[T, T], T]

    def add(self, value: T) -> T:
        """Combine a value with what there is; returns the result."""
        self._checks[0](value)
        before = self._read()
        combined = value if before is None else self._function(before, value)
        if before is not None:
            self._checks[0](combined)
        self._write(combined)
        return combined


class ValueState(State[ValueHandle[T]]):
    """One value for each key, as :func:`value_state` declares it; in a turn it is a :class:`ValueHandle`."""

    kind = "value"

    def bind(self, memory: Memory) -> ValueHandle[T]:
        """A handle over the data of whichever key has its turn."""
        return ValueHandle(self.name, memory, self._types, self.ttl_us)


class ListState(State[ListHandle[T]]):
    """A list for each key, as :func:`list_state` declares it; in a turn it is a :class:`ListHandle`."""

    kind = "list"

    def bind(self, memory: Memory) -> ListHandle[T]:
        """A handle over the data of whichever key has its turn."""
        return ListHandle(self.name, memory, self._types, self.ttl_us)


class MapState(State[MapHandle[K, V]]):
    """A map for each key, as :func:`map_state` declares it; in a turn it is a :class:`MapHandle`."""

    kind = "map"

    def bind(self, memory: Memory) -> MapHandle[K, V]:
        """A handle over the data of whichever key has its turn."""
        return MapHandle(self.name, memory, self._types, self.ttl_us)


class ReducingState(State[ReducingHandle[T]]):
    """A value that others are combined into, as :func:`reducing_state` declares it; a :class:`ReducingHandle`."""

    kind = "reduction"

    def __init__(self, types: tuple[str, ...], function: Callable[[T, T], T], ttl: Duration | None) -> None:
        super().__init__(types, ttl)
        self._function = function

    def bind(self, memory: Memory) -> ReducingHandle[T]:
        """A handle over the data of whichever key has its turn."""
        handle: ReducingHandle[T] = ReducingHandle(self.name, memory, self._types, self.ttl_us)
        handle._function = self._function
        return handle


class _BroadcastValue(ValueState[T]):
    kind = "broadcast value"
    shared = True


class _BroadcastMap(MapState[K, V]):
    kind = "broadcast map"
    shared = True


@overload
def value_state(type: type[T], *, ttl: Duration | None = None) -> ValueState[T]: ...
@overload
def value_state(type: str, *, ttl: Duration | None = None) -> ValueState[Any]: ...
def value_state(type: type[Any] | str, *, ttl: Duration | None = None) -> ValueState[Any]:
    """One value for each key: ``.get(default)``, ``.set(value)``, ``.clear()``.

    The type is Spark's, as a text, or one of Python's own: ``value_state(int)`` is ``value_state("bigint")``, and then
    type checkers know what ``.get()`` returns. With ``ttl`` it is forgotten when so much epoch time has passed since it
    was last written.

    >>> value_state("bigint", ttl="1 hour").describe(), value_state(int, ttl="1 hour").describe()
    ('value of bigint, ttl 1 hour', 'value of bigint, ttl 1 hour')
    """
    return ValueState((_known(type),), ttl)


@overload
def list_state(type: type[T], *, ttl: Duration | None = None) -> ListState[T]: ...
@overload
def list_state(type: str, *, ttl: Duration | None = None) -> ListState[Any]: ...
def list_state(type: type[Any] | str, *, ttl: Duration | None = None) -> ListState[Any]:
    """A list for each key: iterate over it, ``.append(value)``, ``.set(values)``, ``len``, ``.clear()``.

    >>> list_state("timestamp").describe()
    'list of timestamp'
    """
    return ListState((_known(type),), ttl)


@overload
def map_state(key: type[K], value: type[V], *, ttl: Duration | None = None) -> MapState[K, V]: ...
@overload
def map_state(key: type[K], value: str, *, ttl: Duration | None = None) -> MapState[K, Any]: ...
@overload
def map_state(key: str, value: type[V] | str, *, ttl: Duration | None = None) -> MapState[Any, Any]: ...
def map_state(key: type[Any] | str, value: type[Any] | str, *, ttl: Duration | None = None) -> MapState[Any, Any]:
    """A map for each key, used like a dict; with ``ttl`` each entry lives so long after it was written.

    >>> map_state("string", "bigint").describe()
    'map of string, bigint'
    """
    return MapState((_known(key), _known(value)), ttl)


@overload
def reducing_state(
    type: type[T], function: Callable[[T, T], T], *, ttl: Duration | None = None
) -> ReducingState[T]: ...
@overload
def reducing_state(
    type: str, function: Callable[[Any, Any], Any], *, ttl: Duration | None = None
) -> ReducingState[Any]: ...
def reducing_state(
    type: type[Any] | str, function: Callable[[Any, Any], Any], *, ttl: Duration | None = None
) -> ReducingState[Any]:
    """A value that others are combined into: ``.add(value)``, ``.get(default)``, ``.clear()``.

    >>> reducing_state("bigint", max).describe()
    'reduction of bigint'
    """
    return ReducingState((_known(type),), function, ttl)


@overload
def broadcast_state(type: type[T]) -> ValueState[T]: ...
@overload
def broadcast_state(type: str) -> ValueState[Any]: ...
def broadcast_state(type: type[Any] | str) -> ValueState[Any]:
    """One value for all keys, written in ``on_broadcast`` only.

    >>> broadcast_state("double").describe()
    'broadcast value of double'
    """
    return _BroadcastValue((_known(type),), None)


@overload
def broadcast_map(key: type[K], value: type[V]) -> MapState[K, V]: ...
@overload
def broadcast_map(key: type[K], value: str) -> MapState[K, Any]: ...
@overload
def broadcast_map(key: str, value: type[V] | str) -> MapState[Any, Any]: ...
def broadcast_map(key: type[Any] | str, value: type[Any] | str) -> MapState[Any, Any]:
    """A map for all keys, written in ``on_broadcast`` only.

    >>> broadcast_map("string", "string").describe()
    'broadcast map of string, string'
    """
    return _BroadcastMap((_known(key), _known(value)), None)


def _known(given: type[Any] | str) -> str:
    """The type as it is written everywhere; LS0105 if it is none."""
    if isinstance(given, str):
        return parse_schema(f"value {given}").fields[0].type
    if given in _PYTHON_TYPES:
        return _PYTHON_TYPES[given]
    raise PlanError(
        "LS0105",
        f"a state is declared with {given!r}",
        why=f"of Python's types these will do: {', '.join(each.__name__ for each in _PYTHON_TYPES)}.",
        hint='write the type as Spark does: ls.value_state("decimal(10,2)"), ls.value_state("array<string>").',
    )


def _check(name: str, type_text: str) -> Callable[[Any], None]:
    """Raises LS0313 for a value that is not of the type; the common types are looked at without Arrow."""
    quick = _QUICK.get(type_text, type(None))
    arrow = arrow_type(type_text)
    whole = pa.types.is_integer(arrow)
    limit = 1 << (arrow.bit_width - 1) if whole else 0

    def check(value: Any) -> None:
        kind = type(value)
        if kind is quick or (whole and kind is int and -limit <= value < limit):
            return
        try:
            if value is None or (kind is bool and type_text != "boolean"):
                raise pa.ArrowTypeError(f"{value!r} is not a {type_text}")
            pa.array([value], arrow)
        except UNFIT as error:
            raise FunctionError(
                "LS0313",
                f'state "{name}" holds {type_text}, but was given {shown(value)} ({kind.__name__})',
                why=str(error),
                hint="convert the value, or change the type where the state is declared.",
            ) from None

    return check
