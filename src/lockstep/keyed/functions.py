"""A user's Python function inside a step: what it returned as a record of a schema, and what it raised, explained."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from lockstep.errors import FunctionError
from lockstep.keyed.records import Record

UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
"""What Arrow raises for a value that does not fit its type."""
_RECORD_SHOWN_MAX = 400
_PLAIN_KINDS = {
    pa.string(): str,
    pa.bool_(): bool,
    pa.float64(): float,
    pa.binary(): bytes,
    pa.timestamp("us", tz="UTC"): datetime,
}
SKIP_HINT = 'mend the function, or skip such records to the dead-letter journal with on_error="skip".'


@dataclass(frozen=True)
class Returned:
    """Reads what the function of ``step`` returned as records of ``schema``.

    >>> Returned("totals", pa.schema([("user", pa.string()), ("n", pa.int64())])).row(("ann", 3))
    {'user': 'ann', 'n': 3}
    """

    step: str
    schema: pa.Schema

    def row(self, outcome: Any) -> dict[str, Any]:
        """The outcome as a dict of the schema's fields; a field may be missing (null). LS0302 if it is no record."""
        names = self.schema.names
        if isinstance(outcome, Record):
            row = outcome.asdict()
        elif isinstance(outcome, Mapping):
            row = dict(outcome)
        elif is_dataclass(outcome) and not isinstance(outcome, type):
            row = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        elif isinstance(outcome, tuple) and len(outcome) == len(names):
            return dict(zip(names, outcome, strict=True))
        else:
            raise FunctionError(
                "LS0302",
                f'step "{self.step}" returned {shown(outcome)}',
                why=f"a record of this step is a dict (or tuple, or dataclass) with: {', '.join(names)}.",
                hint="to drop records use .filter(...) or .flat_map(...) with an empty list.",
            )
        if extra := [name for name in row if name not in names]:
            raise FunctionError(
                "LS0302",
                f'step "{self.step}" returned fields that its schema does not have: {", ".join(map(str, extra))}',
                why=f"the schema has: {', '.join(names)}.",
                hint="add them to schema=..., or leave them out of what the function returns.",
            )
        return row

    def check_types(self, row: Mapping[str, Any]) -> None:
        """Refuse a row whose values do not fit the schema (LS0303)."""
        try:
            pa.RecordBatch.from_pylist([row], self.schema)
        except UNFIT as error:
            raise FunctionError(
                "LS0303",
                f'step "{self.step}" returned a value that does not fit its schema',
                why=f"{error}; returned: {shown(row)}.",
                hint="mend the function or its schema=....",
            ) from None

    def values(self, outcome: Any) -> tuple[Any, ...]:
        """The outcome as checked values in the order of the schema."""
        row = self.row(outcome)
        values = tuple(map(row.get, self.schema.names))
        self.check_values(values)
        return values

    def check_values(self, values: tuple[Any, ...]) -> None:
        """As :meth:`check_types`, for values in the order of the schema: Arrow is asked only in case of doubt."""
        for value, (kind, limit) in zip(values, self._plain, strict=True):
            if value is None:
                continue
            python = type(value)
            if python is not kind or (limit and not -limit <= value < limit):
                self.check_types(dict(zip(self.schema.names, values, strict=True)))
                return

    @cached_property
    def _plain(self) -> tuple[tuple[type | None, int], ...]:
        """For each field the Python type that always fits, and for whole numbers the limit."""
        return tuple(_plain_kind(field.type) for field in self.schema)


def _plain_kind(kind: pa.DataType) -> tuple[type | None, int]:
    if pa.types.is_integer(kind):
        return int, 1 << (kind.bit_width - 1)
    return _PLAIN_KINDS.get(kind), 0


def explained(step: str, error: Exception, record: str, hint: str = SKIP_HINT) -> FunctionError:
    """What a user's function raised, with the line of their code and the record it was given."""
    if isinstance(error, FunctionError):
        return FunctionError(error.code, error.fact, why=f"{error.why} record: {record}".lstrip(), hint=error.hint)
    return FunctionError(
        "LS0301",
        f'the function of step "{step}" raised {type(error).__name__}: {error}',
        why=f"at {users_line(error)}; record: {record}",
        hint=hint,
    )


def users_line(error: Exception) -> str:
    """Where in the user's own code it happened: the deepest frame outside Lockstep and the libraries."""
    own = str(Path(__file__).parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(own) and "site-packages" not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line or ''}".rstrip(": ")
    return "a library called by the function"


def shown(value: object) -> str:
    """A value for a message, cut where it gets long."""
    text = repr(value)
    return text if len(text) <= _RECORD_SHOWN_MAX else text[:_RECORD_SHOWN_MAX] + " ..."
