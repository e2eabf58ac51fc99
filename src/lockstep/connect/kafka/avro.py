"""Values in Avro as a table: read by fastavro, and byte by byte where its answer is not to be trusted.

fastavro is quick and forgiving: it takes a branch of a union counted from the end, and any byte but 0 for true. So what
it reads counts only if writing it gives the same bytes again; otherwise ``avro_bytes.py`` decides, and says why.
Logical types are left out of what fastavro sees: its decimals are rounded where they do not fit.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from functools import lru_cache
from itertools import count
from types import ModuleType
from typing import Any

import pyarrow as pa

from lockstep.connect.formats import told
from lockstep.connect.kafka.avro_bytes import strict_reader
from lockstep.connect.kafka.avro_schema import AvroType, avro_record
from lockstep.connect.kafka.records import SetAside, Values
from lockstep.errors import ConnectError
from lockstep.plan.schema import Schema
from lockstep.store.types import arrow_schema
from lockstep.store.values import TIMESTAMP_US_MAX, TIMESTAMP_US_MIN, Unfit

Finish = Callable[[Any], Any]
"""From plain data to the form Arrow takes."""

HEADER_BYTES = 5
"""Confluent's header: a zero, and the number of the schema in their registry in 4 bytes."""
_DAY_US = 86_400_000_000
_EXACT = Context(prec=100)


def library() -> ModuleType:
    """fastavro, LS0527 if it is not installed."""
    try:
        import fastavro
    except ImportError as error:
        raise ConnectError(
            "LS0527",
            "the reader of Avro is not installed",
            why=f'format="avro" needs the package fastavro ({error}).',
            hint="pip install 'lockstep[avro,kafka]'",
        ) from error
    return fastavro


@lru_cache(maxsize=64)
def avro_values(text: str, header: str, columns: Schema) -> AvroValues:
    """The reader of a topic's values; one for all tasks of a process."""
    return AvroValues(avro_record(text), header, columns)


class AvroValues:
    """Reads values that were written with one schema."""

    def __init__(self, record: AvroType, header: str, columns: Schema) -> None:
        self._fastavro = library()
        self._schema = self._fastavro.parse_schema(_plain_schema(record, count()))
        self._strict = strict_reader(record)
        self._has_header = bool(header)
        self._columns = arrow_schema(columns)
        self._finish = _finish_fields(record, columns.names) or _as_it_is

    def table(self, values: Values, set_aside: SetAside) -> pa.Table:
        """One row for each value that is well, in order. A value that is null gives a row of nulls."""
        rows = list(self._rows(values, self._read, set_aside))
        try:
            return self._as_table([row for _, row in rows])
        except (pa.ArrowInvalid, OverflowError):
            # An int of more than 32 bits is nothing that fastavro minds.
            well = [index for index, _ in rows]

            def note(at: int, reason: str) -> object:
                return set_aside(well[at], reason)

            again = self._rows([values[index] for index in well], self._strict, note)
            return self._as_table([row for _, row in again])

    def _rows(
        self, values: Values, read: Callable[[bytes], Any], set_aside: SetAside
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, value in enumerate(values):
            try:
                yield index, {} if value is None else self._finish(read(self._payload(value)))
            except Unfit as unfit:
                set_aside(index, told(unfit))

    def _payload(self, value: bytes) -> bytes:
        if not self._has_header:
            return value
        if len(value) < HEADER_BYTES or value[0]:
            raise Unfit("its value does not begin with Confluent's header: a zero and 4 bytes")
        return value[HEADER_BYTES:]

    def _read(self, data: bytes) -> Any:
        written = io.BytesIO()
        try:
            value = self._fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)
            self._fastavro.schemaless_writer(written, self._schema, value)
        except Exception:  # whatever it is, the strict reader finds it, and says it without addresses in memory
            return self._strict(data)
        return value if written.getvalue() == data else self._strict(data)

    def _as_table(self, rows: list[dict[str, Any]]) -> pa.Table:
        array = pa.array(rows, pa.struct(list(self._columns)))
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])


def _plain_schema(of: AvroType, numbers: Iterator[int]) -> Any:
    """What fastavro is given: the same bytes, without logical types; each named type once, under a name of its own."""
    name = f"type{next(numbers)}"
    plain: Any = of.kind
    if of.kind == "record":
        inner = [{"name": each, "type": _plain_schema(type_, numbers)} for each, type_ in of.fields]
        plain = {"type": "record", "name": name, "fields": inner}
    elif of.kind in ("array", "map"):
        [(part, type_)] = of.fields
        plain = {"type": of.kind, part: _plain_schema(type_, numbers)}
    elif of.kind == "enum":
        plain = {"type": "enum", "name": name, "symbols": list(of.symbols)}
    elif of.kind == "fixed":
        plain = {"type": "fixed", "name": name, "size": of.size}
    return ["null" if is_null else plain for is_null in of.union] if of.union else plain


def _as_it_is(row: Any) -> Any:
    return row


def _finish_fields(record: AvroType, names: tuple[str, ...]) -> Finish | None:
    """Changes what has to be changed, in the record itself; fields beyond ``names`` stay, and Arrow ignores them."""
    steps = [(name, step) for name, of in record.fields if name in names and (step := _finish(of)) is not None]
    if not steps:
        return None

    def finish(row: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps:
            value = row[name]
            if value is not None:
                row[name] = _inside(name, step, value)
        return row

    return finish


def _finish(of: AvroType) -> Finish | None:
    """How a value that is not null becomes what Arrow takes; None if it is that already."""
    if of.kind == "record":
        return _finish_fields(of, tuple(name for name, _ in of.fields))
    if of.kind in ("array", "map"):
        inner = _finish(of.fields[0][1])
        return _finish_map(inner) if of.kind == "map" else inner and _finish_array(inner)
    if of.logical == "decimal":
        return _decimal(*of.digits)
    if of.logical == "date":
        return _between(1, TIMESTAMP_US_MIN // _DAY_US, TIMESTAMP_US_MAX // _DAY_US)
    if of.logical:
        return _between(1000 if of.logical.endswith("millis") else 1, TIMESTAMP_US_MIN, TIMESTAMP_US_MAX)
    return None


def _finish_array(inner: Finish) -> Finish:
    def finish(values: list[Any]) -> list[Any]:
        return [each if each is None else _inside(str(at), inner, each) for at, each in enumerate(values)]

    return finish


def _finish_map(inner: Finish | None) -> Finish:
    def finish(values: dict[str, Any]) -> list[tuple[str, Any]]:
        if inner is None:
            return list(values.items())
        return [(key, each if each is None else _inside(key, inner, each)) for key, each in values.items()]

    return finish


def _decimal(precision: int, scale: int) -> Finish:
    limit = 10**precision

    def finish(data: bytes) -> Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not data or not -limit < unscaled < limit:
            raise Unfit(f"should be a decimal of {precision} digits, and has {len(data)} bytes that are none")
        return Decimal(unscaled).scaleb(-scale, _EXACT)

    return finish


def _between(factor: int, least: int, most: int) -> Finish:
    def finish(number: int) -> int:
        scaled = number * factor
        if not least <= scaled <= most:
            raise Unfit(f"lies outside the years 1 to 9999 ({number})")
        return scaled

    return finish


def _inside(name: str, step: Finish, value: Any) -> Any:
    try:
        return step(value)
    except Unfit as unfit:
        raise unfit.inside(name) from None
