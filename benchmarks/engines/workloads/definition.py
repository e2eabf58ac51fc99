"""A workload as data: what it is called, how a record is made, and what the right results are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.engines.contract import CLOSING_MS, Input, Records, Results, Row
from benchmarks.engines.visibility import Each, Final, Updates, Visibility

Key = tuple[object, ...]
_MIX = 2_654_435_761
"""Knuth's multiplier: neighbouring numbers become numbers that are not neighbours."""


def mixed(number: int) -> int:
    """A number of 32 bits that looks random and is a function of ``number``.

    >>> [mixed(number) for number in range(3)]
    [0, 2654435761, 1013904226]
    """
    return number * _MIX % (1 << 32)


def no_keys(_source: str, _record: Row) -> Iterable[Key]:
    """For workloads whose results have no key."""
    return ()


@dataclass(frozen=True)
class Definition:
    """A :class:`benchmarks.engines.contract.Workload` put together from functions."""

    name: str
    title: str
    inputs: tuple[Input, ...]
    steps: str
    results: Results
    columns: tuple[str, ...]
    key: tuple[str, ...]
    make: Callable[[str, int, int], Row]
    """(source, seq, sent_us) -> the record without these two."""
    reference: Callable[[Records], list[Row]]
    keys_of: Callable[[str, Row], Iterable[Key]] = no_keys
    """Which results (by key) a record has a part in; for updates."""
    closing_keys: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    """What to fill into closing records, by source: one for every key, for engines whose time goes by key."""
    window_ms: int = 0
    out_of_order_ms: int = 0
    bounded_records: int | None = None

    def records(self, source: str, first: int, count: int, sent_us: int) -> list[Row]:
        """The records of a source from number ``first`` on."""
        return [
            {"seq": seq, "sent_us": sent_us, **self.make(source, seq, sent_us)} for seq in range(first, first + count)
        ]

    def closing(self, source: str, first: int, sent_us: int) -> list[Row]:
        """Records after the last, one for every key, that move event time on."""
        fillings = self.closing_keys.get(source, ())
        return [
            {"seq": first + index, "sent_us": sent_us, "at_ms": CLOSING_MS, **filling}
            for index, filling in enumerate(fillings)
        ]

    def expected(self, records: Records) -> list[Row]:
        """The right results."""
        return self.reference(records)

    def visible(self, records: Records) -> Visibility:
        """How long records, or windows, waited."""
        if self.results is Results.EACH:
            return Each(records)
        if self.results is Results.UPDATES:
            return Updates(records, self.keys_of, self.key)
        return Final(self, records)
