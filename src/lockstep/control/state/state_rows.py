"""What the state of a step says, as rows: read out of Spark's stores by what the checkpoint's plan tells of the step.

Two kinds of steps keep state by key. Spark's own aggregations have a row for each key (and window) with what each
aggregate has put together so far. Keyed steps have pages (``keyed/pages.py``), in which each key has a cell of plain
data. Neither needs the job's code: a checkpoint says which steps wrote it, and how.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from lockstep.durations import duration_us
from lockstep.keyed.codec import unpack, utc_time
from lockstep.keyed.key_hash import key_hash
from lockstep.keyed.pages import DATA, KEY, Entry, Pages, key_bytes
from lockstep.plan.aggregates import canonical
from lockstep.runtime.state.store_reader import StoreReader
from lockstep.runtime.state.unsafe_rows import Field, Unreadable, read_row, write_row

Row = dict[str, Any]
StepPlan = Mapping[str, Any]
"""A step with state as a checkpoint's plan has it."""
_MASK = (1 << 64) - 1
_PAGES_TABLE = b"\x02\x00"
"""Spark's number for the table "pages", before each of its keys: the second it makes, after the default one."""
_LOW_BITS = 16
_ROLLING = frozenset({"RollingFold", "RollingReduce", "RollingExtreme", "RollingAggregate"})
_KEYED = _ROLLING | {"ProcessStep", "Distinct", "Latest", "AggregateOfChanges"}
_WINDOWED = "WindowStep"
_NATIVE = "Aggregate"


@dataclass(frozen=True)
class Key:
    """A part of a step's key: its name and its type, empty where the plan does not tell it."""

    name: str
    type: str


def keys_of(step: StepPlan) -> tuple[Key, ...]:
    """The parts of a step's key.

    >>> keys_of({"keys": [{"name": "user", "expression": {"column": "user"}}], "sources": {"s": {"user": "string"}}})
    (Key(name='user', type='string'),)
    """
    parts = step["keys"]
    if parts and isinstance(parts[0], list):
        # One list for each input; a broadcast one has none.
        parts = next((one for one in parts if one is not None), [])
    return tuple(Key(str(part["name"]), _column_type(part["expression"], step)) for part in parts)


def unreadable(step: StepPlan) -> str:
    """Why the state of a step is not read; empty if it is."""
    if step["step"] in _KEYED or step["step"] in (_NATIVE, _WINDOWED):
        return ""
    return {
        "BoltStep": "it is the state of a bolt's tasks, not of keys",
        "CoGroup": "it holds the records of two streams that wait for each other",
    }.get(step["step"], "it holds records that wait for others, not results by key")


class KeyedRows:
    """The rows of a keyed step, whose pages are spread over the partitions of its store."""

    def __init__(self, step: StepPlan, partitions: Sequence[StoreReader], epoch_time_us: int) -> None:
        self._step = step
        self._partitions = partitions
        self._keys = keys_of(step)
        self._epoch_time_us = epoch_time_us
        self._cell = _cell_reader(step, epoch_time_us)

    def of_key(self, key: Sequence[Any]) -> Iterator[Row]:
        """The rows of one key: its page is found by its hash."""
        hashed = key_hash(key, [part.type for part in self._keys])
        if hashed is None:
            yield from (row for row in self.all() if [row[part.name] for part in self._keys] == list(key))
            return
        pages = Pages(_BucketStore(self._partitions, hashed % int(self._step["buckets"])))
        _, entry = pages.find(hashed & _MASK, key_bytes(tuple(key)))
        yield from self._rows(entry)

    def all(self) -> Iterator[Row]:
        """Every row, in no order."""
        for bucket in range(int(self._step["buckets"])):
            for entry in Pages(_BucketStore(self._partitions, bucket)):
                yield from self._rows(entry)

    def _rows(self, entry: Entry) -> Iterator[Row]:
        if not entry[DATA]:
            return
        key = dict(zip([part.name for part in self._keys], unpack(entry[KEY]), strict=True))
        for found in self._cell(unpack(entry[DATA])):
            yield {**key, **found}


class _BucketStore:
    """The pages of one bucket, in whichever partition they are: implements :class:`lockstep.keyed.pages.PageStore`."""

    def __init__(self, partitions: Sequence[StoreReader], bucket: int) -> None:
        self._partitions = partitions
        inner = write_row([bucket], [Field("bucket", "integer")])
        self._prefix = b"\0" + _struct_row(inner)

    def get(self, name: str) -> bytes | None:
        user_key = b"\0" + _struct_row(write_row([name], [Field("name", "string")]))
        key = _PAGES_TABLE + struct.pack("<i", len(self._prefix)) + self._prefix + user_key
        for partition in self._partitions:
            if (found := partition.get(key)) is not None:
                return bytes(read_row(found[1:], [Field("page", "binary")])[0])
        return None

    def put(self, name: str, value: bytes) -> None:
        raise AssertionError(f"{name} is only read here, not written: {len(value)} bytes")

    def delete(self, name: str) -> None:
        raise AssertionError(f"{name} is only read here")


def _struct_row(inner: bytes) -> bytes:
    """A row whose only field is another row."""
    return bytes(8) + struct.pack("<II", len(inner), 16) + inner


class NativeRows:
    """The rows of an aggregation of Spark's: without a window one for each key, else one for each open window."""

    def __init__(
        self, step: StepPlan, partitions: Sequence[StoreReader], schemas: tuple[Sequence[Field], Sequence[Field]]
    ) -> None:
        self._partitions = partitions
        self._key_fields, self._value_fields = schemas
        self._window = step.get("window")
        self._is_session = (self._window or {}).get("kind") == "session"
        own = {field.name for field in self._key_fields} | {"session_window"}
        self._buffers = [field for field in self._value_fields if not self._is_session or field.name not in own]
        self._results = results_of(step["aggregates"], self._buffers)
        self._keys = [part.name for part in keys_of(step)]

    def of_key(self, key: Sequence[Any]) -> Iterator[Row]:
        """The rows of one key; those of its windows lie apart from each other."""
        if self._window is not None:
            yield from (row for row in self.all() if [row[name] for name in self._keys] == list(key))
            return
        try:
            wanted = b"\0" + write_row(key, self._key_fields)
        except Unreadable:
            yield from (row for row in self.all() if [row[name] for name in self._keys] == list(key))
            return
        for partition in self._partitions:
            if (found := partition.get(wanted)) is not None:
                yield self._row(wanted, found)

    def all(self) -> Iterator[Row]:
        """Every row, in no order."""
        for partition in self._partitions:
            for key, value in partition.scan():
                yield self._row(key, value)

    def _row(self, key: bytes, value: bytes) -> Row:
        found = read_row(value[1:], self._value_fields)
        if self._is_session:
            values = dict(zip([field.name for field in self._value_fields], found, strict=True))
            buffers = found[len(self._value_fields) - len(self._buffers) :]
        else:
            values = dict(zip([field.name for field in self._key_fields], self._key(key), strict=True))
            buffers = found
        window = values.pop("session_window", None) or values.pop("window", None)
        bounds = {"window_start": window["start"], "window_end": window["end"]} if window else {}
        return {**{name: values[name] for name in self._keys}, **bounds, **self._results(buffers)}

    def _key(self, key: bytes) -> tuple[Any, ...]:
        return read_row(key[1:], self._key_fields)


Results = Callable[[Sequence[Any]], Row]


def results_of(aggregates: Sequence[Mapping[str, Any]], buffers: Sequence[Field]) -> Results:
    """How the user's columns follow from what Spark keeps of each aggregate; where that is not known, what it keeps.

    >>> n = {"name": "n", "expression": {"call": "count", "args": ["*"]}}
    >>> results_of([n], [Field("count", "long")])([7])
    {'n': 7}
    """
    parts: list[tuple[str, str, int, int]] = []
    at = 0
    for aggregate in aggregates:
        function = canonical(str(aggregate["expression"].get("call", "")))
        size = next((len(kinds) for kinds in _LAYOUTS.get(function, ()) if _fits(buffers[at:], kinds)), None)
        if size is None:
            return partial(_as_kept, [field.name for field in buffers])
        parts.append((str(aggregate["name"]), function, at, size))
        at += size
    return lambda values: {name: _result(function, values[at : at + size]) for name, function, at, size in parts}


def _as_kept(names: Sequence[str], values: Sequence[Any]) -> Row:
    return {f"{name}_{number}": value for number, (name, value) in enumerate(zip(names, values, strict=True))}


_LONG_SUM = ("sum long", "sum long")
_DECIMAL_SUM = ("sum decimal", "isEmpty boolean")
_FLOAT_SUM = ("bit_or integer", *_DECIMAL_SUM, *_DECIMAL_SUM)
_LAYOUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "count": (("count",),),
    "count_if": (("count",),),
    "min": (("min",),),
    "max": (("max",),),
    "bool_and": (("min",),),
    "bool_or": (("max",),),
    "sum": (_FLOAT_SUM, _LONG_SUM, _DECIMAL_SUM, ("sum",)),
    "avg": ((*_FLOAT_SUM, "count"), (*_DECIMAL_SUM, "count")),
}
"""What Spark keeps for each aggregate, as ``compile/aggregates.py`` asks for it: name and type, the longest first."""


def _fits(buffers: Sequence[Field], kinds: Sequence[str]) -> bool:
    if len(buffers) < len(kinds):
        return False
    found = [f"{field.name} {field.type}" for field in buffers[: len(kinds)]]
    return all(one.startswith(kind) for one, kind in zip(found, kinds, strict=True))


def _result(function: str, values: Sequence[Any]) -> Any:
    if function == "avg":
        total, count = _result("sum", values[:-1]), values[-1]
        return None if not count or total is None else float(total) / count
    match values:
        case [int() as high, int() as low]:
            return (high << _LOW_BITS) + low
        case [bits, whole, _, fraction, _]:
            return _float_sum(bits, whole, fraction)
        case [Decimal() as total, empty]:
            return None if empty else total
        case [value, *_]:
            return value
    return None


def _float_sum(bits: int | None, whole: Decimal | None, fraction: Decimal | None) -> float | None:
    if bits is None:
        return None
    if bits:
        return {1: float("inf"), 2: float("-inf")}.get(bits, float("nan"))
    return float((whole or Decimal(0)) + (fraction or Decimal(0)))


def _cell_reader(step: StepPlan, epoch_time_us: int) -> Callable[[Any], Iterator[Row]]:
    """How the data of a cell becomes rows, by the kind of step."""
    match step["step"]:
        case "ProcessStep":
            return lambda data: iter([_states(step["states"], data, epoch_time_us)])
        case "RollingFold":
            names = [field["name"] for field in step["schema"]]
            return lambda data: iter([_accumulated(names, data[0])])
        case "RollingReduce" | "RollingExtreme" | "Latest":
            return lambda data: iter([_without_keys(dict(zip(step["record"], data, strict=False)), step)])
        case "RollingAggregate" | "AggregateOfChanges" as kind:
            totals = _totals if kind == "RollingAggregate" else _signed_totals
            return lambda data: iter([totals(step["aggregates"], data)])
        case "Distinct":
            return lambda data: iter([{"seen": _times(step, data)}])
    return lambda data: _windows(step, data)


def _times(step: StepPlan, data: Any) -> list[datetime]:
    """When records were let through; where the last is kept, then those that wait."""
    times_us = [*data[1], *(one[0] for one in data[0])] if step.get("keep") == "last" else data
    return [utc_time(at_us) for at_us in times_us]


def _states(states: Mapping[str, str], data: Mapping[str, Any], epoch_time_us: int) -> Row:
    """The states that a process declares; one with a time to live is kept with when it was written."""
    found: Row = {}
    for name, told in states.items():
        value = data.get(name)
        if ", ttl " in told and value is not None:
            value = value[0] if _lives(told, value, epoch_time_us) else None
        found[name] = value
    return found


def _lives(told: str, value: Any, epoch_time_us: int) -> bool:
    written_us = value[1]
    return not isinstance(written_us, int) or written_us + duration_us(told.rpartition(", ttl ")[2]) > epoch_time_us


def _accumulated(names: Sequence[str], accumulator: Any) -> Row:
    if isinstance(accumulator, Mapping) and set(accumulator) == set(names):
        return dict(accumulator)
    if isinstance(accumulator, tuple) and len(accumulator) == len(names):
        return dict(zip(names, accumulator, strict=True))
    return {names[0]: accumulator}


def _without_keys(record: Row, step: StepPlan) -> Row:
    keys = {part.name for part in keys_of(step)}
    return {name: value for name, value in record.items() if name not in keys}


def _totals(aggregates: Sequence[Mapping[str, Any]], data: Sequence[Any]) -> Row:
    """Results of the usual aggregates; of others what they keep."""
    found: Row = {}
    for aggregate, state in zip(aggregates, data, strict=True):
        function = canonical(str(aggregate["expression"].get("call", "")))
        found[str(aggregate["name"])] = _total(function, state)
    return found


def _total(function: str, state: Any) -> Any:
    match function, state:
        case "avg", (int() | Decimal() as total, int() as count):
            return float(total) / count if count else None
        case "avg", (Decimal() as total, int() as bits, int() as count):
            summed = _float_sum(bits, total, None)
            return summed / count if count and summed is not None else None
        case "sum", (Decimal() as total, int() as bits, int() as count):
            return _float_sum(bits if count else None, total, None)
    return state


def _signed_totals(aggregates: Sequence[Mapping[str, Any]], data: Sequence[Any]) -> Row:
    """Counts, sums and averages of the rows that hold; of other aggregates how often each value is there."""
    _, states = data
    return {str(one["name"]): _signed_total(one, state) for one, state in zip(aggregates, states, strict=True)}


def _signed_total(aggregate: Mapping[str, Any], state: Any) -> Any:
    if not isinstance(state, tuple):
        return state
    total, count, *odd = state
    if not count:
        return None
    if odd and any(odd[0]):
        kinds = sum(bit for bit, times in zip((4, 1, 2), odd[0], strict=True) if times)
        total = {1: float("inf"), 2: float("-inf")}.get(kinds, float("nan"))
    is_average = canonical(str(aggregate["expression"].get("call", ""))) == "avg"
    if is_average:
        return float(total) / count
    return float(total) if odd else total


def _windows(step: StepPlan, data: Any) -> Iterator[Row]:
    """Open windows: of a count of records, or with bounds in time."""
    aggregates = step.get("aggregates")

    def contents(kept: Any) -> Row:
        return _totals(aggregates, kept) if aggregates and isinstance(kept, list) else {"contents": kept}

    if step["window"].get("kind") == "count":
        yield {"contents": data}
        return
    for start_us, end_us, kept, *_ in data:
        bounds = {"window_start": _instant(start_us), "window_end": _instant(end_us)}
        yield {**bounds, **contents(kept)}


def _instant(at_us: int | None) -> datetime | None:
    return None if at_us is None else utc_time(at_us)


def _column_type(expression: Any, step: StepPlan) -> str:
    """The type of a key that is a column of a source; empty for anything else."""
    name = expression.get("column") if isinstance(expression, Mapping) else None
    types = {columns[name] for columns in step["sources"].values() if name in columns}
    return str(types.pop()) if len(types) == 1 else ""
