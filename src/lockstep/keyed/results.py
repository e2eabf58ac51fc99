"""What an operator emitted as an Arrow batch, with the record to blame where a value does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lockstep.errors import FunctionError
from lockstep.keyed.engine import Emitted
from lockstep.keyed.functions import UNFIT, shown

EMITTED = ("at_us", "number", "order_us")
"""What follows the values of emitted records; the last only if it was asked for."""


def batch_of(step: str, emitted: Emitted, schema: pa.Schema, first_number: int = 0) -> pa.RecordBatch:
    """The emitted records in the types of ``schema``, then what :data:`EMITTED` names."""
    numbers = [first_number + number for number in emitted.numbers or range(len(emitted.rows))]
    columns = list(zip(*emitted.rows, strict=True)) if len(schema) else []
    try:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except UNFIT:
        raise _unfit(step, emitted.rows, schema) from None
    beside = [emitted.at_us, numbers, *([emitted.order_us] if emitted.order_us else [])]
    arrays += [pa.array(values, pa.int64()) for values in beside]
    return pa.RecordBatch.from_arrays(arrays, names=[*schema.names, *EMITTED[: len(beside)]])


def _unfit(step: str, rows: list[tuple[Any, ...]], schema: pa.Schema) -> FunctionError:
    """Find the record: only now is it worth looking at each."""
    for row in rows:
        for value, field in zip(row, schema, strict=True):
            try:
                pa.array([value], field.type)
            except UNFIT as error:
                return FunctionError(
                    "LS0303",
                    f'step "{step}" emitted {shown(value)} as "{field.name}", which is {field.type}',
                    why=f"{error}; emitted: {shown(dict(zip(schema.names, row, strict=True)))}.",
                    hint="mend the function or its schema=....",
                )
    raise AssertionError("each record fits alone, but not all together")
