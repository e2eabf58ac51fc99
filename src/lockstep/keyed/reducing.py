"""Two ways to put records together with a user's function: two records to one, or a value that each record changes.

Rolling results and windows share them. What the function sees never depends on where epochs are cut: before each call
an accumulator has the form in which it would come back from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pyarrow as pa

from lockstep.errors import FunctionError, PlanError
from lockstep.keyed.functions import Returned, explained, shown
from lockstep.keyed.records import Record
from lockstep.store.types import schema_text

MEND = "mend the function and run the job again: it goes on with the epoch that failed."
_PLAIN = frozenset({dict, tuple, list, int, float, str, bool, bytes, type(None)})


class Reducer:
    """Puts two records together to one of the same columns: ``function(so_far, record)``."""

    def __init__(self, step: str, function: Callable[[Any, Any], Any], schema: pa.Schema) -> None:
        """``schema`` is that of the stream's columns; values after these are left out."""
        self._step = step
        self._function = function
        self._names = tuple(schema.names)
        self._fields = frozenset(schema.names)
        self._returned = Returned(step, schema)

    def record(self, values: tuple[Any, ...]) -> Record:
        """A record as the function sees it, of an arrival's values or of a kept state."""
        return Record(dict(zip(self._names, values, strict=False)))

    def add(self, so_far: Record | None, values: tuple[Any, ...]) -> Record:
        """The record of ``so_far`` and one more; the first one stands for itself."""
        record = Record(dict(zip(self._names, values, strict=False)))
        if so_far is None:
            return record
        try:
            outcome = self._function(so_far, record)
            if type(outcome) is dict and outcome.keys() == self._fields:
                return Record(outcome)
            if type(outcome) is not Record:
                row = self._returned.row(outcome)
                outcome = Record({name: row.get(name) for name in self._names})
        except Exception as error:
            raise explained(self._step, error, f"{shown(so_far)} and {shown(record)}", MEND) from None
        return outcome

    def state(self, so_far: Record) -> tuple[Any, ...]:
        """Plain data to keep, which :meth:`record` takes back."""
        return tuple(map(so_far.asdict().get, self._names))

    def values(self, so_far: Record) -> tuple[Any, ...]:
        """The values of a result, in the order of the columns, their types checked."""
        values = self.state(so_far)
        self._returned.check_values(values)
        return values


class Folder:
    """Lets each record change an accumulator: ``function(accumulator, record)`` returns the new one.

    The accumulator has the form of ``initial``: a dict or tuple of the schema's fields; with one field, also its value.
    """

    def __init__(
        self, step: str, function: Callable[[Any, Any], Any], initial: Any, schema: pa.Schema, columns: tuple[str, ...]
    ) -> None:
        self._step = step
        self._function = function
        self._initial = initial
        self._columns = columns
        self._returned = Returned(step, schema)
        self._bare = is_bare(initial, schema.names)
        self._check_initial(schema)

    def initial(self) -> Any:
        """A new accumulator."""
        return deepcopy(self._initial)

    def add(self, accumulator: Any, values: tuple[Any, ...]) -> Any:
        """The accumulator after one more record."""
        record = Record(dict(zip(self._columns, values, strict=False)))
        try:
            outcome = self._function(accumulator, record)
            return outcome if self._bare or type(outcome) in _PLAIN else self._returned.row(outcome)
        except Exception as error:
            raise explained(self._step, error, shown(record), MEND) from None

    def values(self, accumulator: Any) -> tuple[Any, ...]:
        """The accumulator as a result's values, checked."""
        if not self._bare:
            return self._returned.values(accumulator)
        values = (accumulator,)
        self._returned.check_values(values)
        return values

    def _check_initial(self, schema: pa.Schema) -> None:
        try:
            self.values(self.initial())
        except FunctionError as error:
            raise PlanError(
                "LS0172",
                f'the initial value of step "{self._step}" does not fit its schema',
                why=f"it is {shown(self._initial)}, and the schema is: {schema_text(schema)}. {error.why}",
                hint="a dict with the schema's fields; with one field, its value alone will do.",
            ) from None


def is_bare(initial: Any, names: list[str]) -> bool:
    """Whether an accumulator is the value of the only field itself, not a record of fields.

    >>> is_bare(0, ["n"]), is_bare({"n": 0}, ["n"]), is_bare({"ann": 1}, ["counts"])
    (True, False, True)
    """
    if len(names) != 1:
        return False
    if isinstance(initial, Mapping):
        return set(initial) != set(names)
    return not (isinstance(initial, tuple) and len(initial) == 1)
