"""The order of rows on their way to a keyed sink: a text for each row, in the hidden column ``__order``.

It compares byte by byte in Spark, in Arrow and in a database: event time (none first), then source, partition, offset
and part, each of fixed width or ended by a blank. Where even that is equal (a stream united with itself) the row's own
hash decides, so that every replica keeps the same row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf

from lockstep.compile.hidden_columns import EVENT_TIME, OFFSET, ORDER_TIME, PART, PARTITION, SOURCE
from lockstep.connect.protocols import ORDER

if TYPE_CHECKING:
    from lockstep.compile.steps import Lowered

_DIGITS = 16
_LOWEST = -(1 << 63)


def order_of(given: Lowered) -> SparkColumn:
    """The text that orders the rows of a step's output, from whatever hidden columns they carry."""
    names = given.hidden_names
    known = [sf.col(name) for name in (ORDER_TIME, EVENT_TIME) if name in names]
    time = sf.unix_micros(sf.coalesce(*known)) if known else sf.lit(None).cast("bigint")
    made = [sf.col(ORDER)] if ORDER in names else []
    made += [_position(given)] if OFFSET in names else []
    return sf.concat(as_text(time), sf.coalesce(*made, sf.lit("")))


def _position(given: Lowered) -> SparkColumn:
    part = sf.col(PART) if PART in given.hidden_names else sf.lit(None).cast("bigint")
    blank = sf.lit(" ")
    numbers = (as_text(sf.col(OFFSET)), as_text(part))
    return sf.concat(sf.col(SOURCE), blank, sf.col(PARTITION), blank, *numbers)


def as_text(number: SparkColumn) -> SparkColumn:
    """A whole number as text that compares as the number does; null comes first."""
    unsigned = sf.coalesce(number, sf.lit(_LOWEST)).bitwiseXOR(sf.lit(_LOWEST))
    return sf.lpad(sf.hex(unsigned), _DIGITS, "0")
