"""A window's records in the user's own accumulator, and what its class makes of that at the end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from lockstep.errors import FunctionError
from lockstep.keyed.functions import Returned, explained, shown
from lockstep.keyed.operator import Arrival
from lockstep.keyed.records import Record
from lockstep.keyed.reducing import MEND, is_bare
from lockstep.keyed.windows.custom import WindowAggregator
from lockstep.keyed.windows.panes import Pane

_PLAIN = frozenset({dict, tuple, list, int, float, str, bool, bytes, type(None), Decimal, date, datetime})


@dataclass(frozen=True)
class Aggregated:
    """What is kept is the accumulator, in a tuple, since None is an accumulator too."""

    step: str
    aggregator: WindowAggregator
    schema: pa.Schema
    names: tuple[str, ...]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_returned"}

    def add(self, kept: Any, record: Arrival) -> Any:
        """The accumulator after one more record."""
        given = Record(dict(zip(self.names, record.values, strict=False)))
        before = self._called(self.aggregator.create, "create()") if kept is None else kept[0]
        return (self._plain(self._called(self.aggregator.add, shown(given), before, given)),)

    def merge(self, kept: Any, later: Any) -> Any:
        """The accumulators of two windows made one."""
        told = f"{shown(kept[0])} and {shown(later[0])}"
        return (self._plain(self._called(self.aggregator.merge, told, kept[0], later[0])),)

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """One."""
        # A window may give several results: what finish does to the accumulator must not be in the next one.
        finished = self._called(self.aggregator.finish, shown(kept[0]), copy.deepcopy(kept[0]))
        if not is_bare(finished, self.schema.names) or isinstance(finished, Record):
            return [self._returned.values(finished)]
        self._returned.check_values((finished,))
        return [(finished,)]

    def _called(self, method: Callable[..., Any], told: str, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise explained(self.step, error, told, MEND) from None

    def _plain(self, accumulator: Any) -> Any:
        """What comes back from the state as it was; else the next epoch would see something else than this one."""
        if type(accumulator) in _PLAIN:
            return accumulator
        raise FunctionError(
            "LS0311",
            f'the accumulator of step "{self.step}" is {shown(accumulator)}',
            why=f"a {type(accumulator).__name__} cannot be kept in state as it is.",
            hint="an accumulator is a number, a text, or a list, tuple or dict of plain data.",
        )

    @cached_property
    def _returned(self) -> Returned:
        return Returned(self.step, self.schema)
