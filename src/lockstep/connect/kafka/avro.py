"""Values in Avro as a table: one row for each that is well, and a reason for each that is not (``avro_bytes.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lockstep.connect.formats import told
from lockstep.connect.kafka.avro_bytes import strict_reader
from lockstep.connect.kafka.avro_schema import AvroType, avro_record
from lockstep.connect.kafka.records import SetAside, Values
from lockstep.plan.schema import Schema
from lockstep.store.types import arrow_schema
from lockstep.store.values import TIMESTAMP_US_MAX, TIMESTAMP_US_MIN, Unfit, inside

Finish = Callable[[Any], Any]
"""From plain data to the form Arrow takes."""

HEADER_BYTES = 5
"""Confluent's header: a zero, and the number of the schema in their registry in 4 bytes."""
_DAY_US = 86_400_000_000
_EXACT = Context(prec=100)


@lru_cache(maxsize=64)
def avro_values(text: str, header: str, columns: Schema) -> AvroValues:
    """The reader of a topic's values; one for all tasks of a process."""
    return AvroValues(avro_record(text), header, columns)


class AvroValues:
    """Reads values that were written with one schema."""

    def __init__(self, record: AvroType, header: str, columns: Schema) -> None:
        self._read = strict_reader(record)
        self._has_header = bool(header)
        self._columns = arrow_schema(columns)
        self._finish = _finish_fields(record, columns.names) or _as_it_is

    def table(self, values: Values, set_aside: SetAside) -> pa.Table:
        """One row for each value that is well, in order. A value that is null gives a row of nulls."""
        array = pa.array(list(self._rows(values, set_aside)), pa.struct(list(self._columns)))
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])

    def _rows(self, values: Values, set_aside: SetAside) -> Iterator[dict[str, Any]]:
        for index, value in enumerate(values):
            try:
                yield {} if value is None else self._finish(self._read(self._payload(value)))
            except Unfit as unfit:
                set_aside(index, told(unfit))

    def _payload(self, value: bytes) -> bytes:
        if not self._has_header:
            return value
        if len(value) < HEADER_BYTES or value[0]:
            raise Unfit("its value does not begin with Confluent's header: a zero and 4 bytes")
        return value[HEADER_BYTES:]


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
                row[name] = inside(name, step, value)
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
        return [each if each is None else inside(str(at), inner, each) for at, each in enumerate(values)]

    return finish


def _finish_map(inner: Finish | None) -> Finish:
    def finish(values: dict[str, Any]) -> list[tuple[str, Any]]:
        if inner is None:
            return list(values.items())
        return [(key, each if each is None else inside(key, inner, each)) for key, each in values.items()]

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
