"""Records made from a schema: seeded, of few different keys, with times around the one that is given.

There are no nulls in them: a null fits every schema, but makes many a function raise, which would stop the job rightly.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Protocol

import pyarrow as pa

KEYS = 40
"""Texts and whole numbers have about this many values: keys come back, so that state grows and is changed."""
DISORDER_US = 300_000
"""Times are up to this much before the one that is given."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Make = Callable[[Random, int], Any]
"""A value from a source of chance and the time now in microseconds."""


class Making(Protocol):
    """Whoever makes the records of one journal."""

    def record(self, draw: Random, at_us: int) -> dict[str, Any]:
        """One record whose times lie shortly before ``at_us``."""


class Maker:
    """Makes records that fit one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._makers: list[tuple[str, Make]] = [(field.name, _maker(field.type)) for field in schema]

    def record(self, draw: Random, at_us: int) -> dict[str, Any]:
        """One record whose times lie shortly before ``at_us``.

        >>> schema = pa.schema([("user", pa.string()), ("ok", pa.bool_()), ("at", pa.timestamp("us", tz="UTC"))])
        >>> Maker(schema).record(Random(4), 1_000_000)
        {'user': 'k15', 'ok': True, 'at': datetime.datetime(1970, 1, 1, 0, 0, 0, 792352, tzinfo=datetime.timezone.utc)}
        """
        return {name: make(draw, at_us) for name, make in self._makers}


def _maker(kind: pa.DataType) -> Make:
    if pa.types.is_nested(kind):
        return _nested(kind)
    if pa.types.is_decimal(kind):
        scale = kind.scale
        return lambda draw, _: Decimal(draw.randrange(10 ** min(6, kind.precision))).scaleb(-scale)
    for matches, make in _SIMPLE:
        if matches(kind):
            return make
    raise AssertionError(f"a journal's schema cannot have the type {kind}")


def _nested(kind: pa.DataType) -> Make:
    if pa.types.is_list(kind):
        item = _maker(kind.value_type)
        return lambda draw, at_us: [item(draw, at_us) for _ in range(draw.randrange(4))]
    if pa.types.is_map(kind):
        key, value = _maker(kind.key_type), _maker(kind.item_type)
        return lambda draw, at_us: {key(draw, at_us): value(draw, at_us) for _ in range(draw.randrange(3))}
    fields = [(kind.field(index).name, _maker(kind.field(index).type)) for index in range(kind.num_fields)]
    return lambda draw, at_us: {name: make(draw, at_us) for name, make in fields}


def _time(draw: Random, at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us - draw.randrange(DISORDER_US))


def _text(draw: Random, at_us: int) -> str:
    del at_us
    return f"k{draw.randrange(KEYS)}"


_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], Make], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_boolean, lambda draw, _: draw.random() < 0.5),
    (pa.types.is_int8, lambda draw, _: draw.randrange(KEYS)),
    (pa.types.is_integer, lambda draw, _: draw.randrange(KEYS)),
    (pa.types.is_floating, lambda draw, _: draw.randrange(-400, 4000) / 8),
    (pa.types.is_date, lambda draw, _: date(2025, 1, 1) + timedelta(days=draw.randrange(365))),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, _time),
    (pa.types.is_timestamp, lambda draw, at_us: _time(draw, at_us).replace(tzinfo=None)),
    (pa.types.is_binary, lambda draw, _: "".join(draw.choices(string.hexdigits, k=6)).encode()),
)


def malformed_lines(schema: pa.Schema, draw: Random, count: int) -> list[bytes]:
    """Lines as careless clients send them; none of them fits the schema."""
    name = schema.names[draw.randrange(len(schema.names))]
    wrong = (
        b"{",
        b"not json at all",
        b"[1, 2]",
        b'{"no_such_field_here": 1}',
        f'{{"{name}": {{"deep": [["er"]]}}, "{name}": 1}}'.encode(),
        b'{"' + name.encode() + b'": \xff\xfe}',
        f'{{"{name}": NaN}}'.encode(),
    )
    return [draw.choice(wrong) for _ in range(count)]
