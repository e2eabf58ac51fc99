"""What runs for the records of one key: an operator, its cell of state, and the turn through which it acts.

An operator is pure: it sees records in a defined order (event time, then position), a cell of plain data, and the two
clocks of an epoch. So it can be tested without Spark, and gives the same results in every replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

Key = tuple[Any, ...]
"""The values of a key's parts; None is a value like any other."""

TimeKind = Literal["event", "epoch"]
"""Which clock a timer follows: event time (the watermark) or epoch time (processing time)."""


OWN = "\0"
"""What the tags of timers begin with by which Lockstep itself holds records back or lets state expire."""


Position = tuple[str | int, ...]
"""Where a record stands in its source: (source, partition, offset), then its part if it was made from another one."""


class Arrival(NamedTuple):
    """One record for an operator: which input it came by, its values (columns, then computed ones), its event time."""

    input: int
    values: tuple[Any, ...]
    at_us: int | None
    position: Position = ()
    """Only for operators that ask for it (:func:`wants_positions`): it costs time in every record."""


class Timer(NamedTuple):
    """A timer of a key. Setting an equal one again changes nothing."""

    kind: TimeKind
    at_us: int
    tag: str = ""


@dataclass(slots=True)
class Cell:
    """The state of one key: plain data (None, bool, numbers, str, bytes, Decimal, datetime, date, list, tuple, dict).

    Tuples come back as tuples. The key is forgotten when ``data`` is None and it has no timers. Whoever changes
    ``data``, also inside it, sets ``changed``; what is not marked may not be written.
    """

    data: Any = None
    changed: bool = False


class Turn(Protocol):
    """What an operator can ask and do while it has its turn for one key."""

    @property
    def key(self) -> Key:
        """The key whose turn it is."""

    @property
    def watermark_us(self) -> int | None:
        """How far event time has come for this epoch; None if it is not known yet, or the stream has none."""

    @property
    def epoch_time_us(self) -> int:
        """The epoch's time: the only clock there is."""

    @property
    def common(self) -> Cell:
        """State that all keys of this page's bucket share: only broadcast records may change it."""

    def emit(self, values: tuple[Any, ...], at_us: int | None = None, output: int = 0) -> None:
        """Send a record to an output; its values in the order of that output's schema."""

    def set_timer(self, timer: Timer) -> None:
        """Call ``on_timer`` when the timer's clock has reached it: at once after this call's records if it has."""

    def cancel_timer(self, timer: Timer) -> None:
        """Forget a timer, if it is set."""


class Operator(Protocol):
    """What a keyed step does. Made in the driver, pickled by Spark, used in its Python workers.

    In an epoch, for each key: first the timers that are due (in order of time), then the records, then timers that
    became due meanwhile. Timers are due when the watermark (or the epoch time) is at or beyond them.
    """

    @property
    def outputs(self) -> Sequence[pa.Schema]:
        """The schemas of its outputs; 0 is the main one."""

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """The records of one key in this epoch, in order. With broadcast inputs there may be several calls."""

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        """A timer of the key is due; it has been removed already."""

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:
        """A record of a broadcast input; it may change ``turn.common``. ``turn.key`` is ()."""


def wants_positions(operator: Operator) -> bool:
    """Whether an operator reads the positions of its records: it keeps them for later, and puts them in order then."""
    return bool(getattr(operator, "wants_positions", False))
