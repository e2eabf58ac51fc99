"""What a topology has been told of its bolts: their streams, their tasks, and whom they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.api.windows import count, sliding, tumbling
from lockstep.durations import Duration
from lockstep.errors import PlanError
from lockstep.plan.bolts import DEFAULT_STREAM, RETRIES
from lockstep.plan.schema import Schema
from lockstep.plan.steps import OnError
from lockstep.plan.windows import Count, Sliding, Tumbling

Kind = Literal["shuffle", "fields", "all", "global", "direct"]


@dataclass(frozen=True)
class Grouping:
    """Which stream of which component a bolt reads, and which of its tasks gets a tuple."""

    component: str
    stream: str
    kind: Kind
    fields: tuple[str, ...] = ()


@dataclass
class DeclaredBolt:
    """A bolt as it was declared."""

    name: str
    bolt: Any
    streams: dict[str, Schema]
    tasks: int
    tick_us: int | None
    on_error: OnError
    retries: int
    groupings: list[Grouping] = field(default_factory=list)
    window: BoltWindow | None = None


@dataclass(frozen=True)
class BoltWindow:
    """The windows of a bolt on Storm's terms: so many tuples or so long, every so many or so often."""

    length: Duration | int
    every: Duration | int | None

    def of(self, time: Literal["event", "processing"]) -> Count | Tumbling | Sliding:
        """The window, with this time if it is one of time."""
        if isinstance(self.length, int):
            assert self.every is None or isinstance(self.every, int)
            return count(self.length, every=self.every)
        assert not isinstance(self.every, int)
        if self.every is None or self.every == self.length:
            return tumbling(self.length, time=time)
        return sliding(self.length, every=self.every, time=time)


class BoltDeclarer:
    """Says whose tuples a bolt gets, and how they are spread over its tasks. May be called several times."""

    def __init__(self, declared: DeclaredBolt) -> None:
        self._declared = declared

    def shuffle(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to any one task, evenly."""
        return self._add(component, stream, "shuffle")

    def fields(self, component: str, *fields: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Tuples with equal values in these fields go to the same task."""
        if not fields:
            raise PlanError(
                "LS0194",
                f'.fields("{component}") of bolt "{self._declared.name}" names no fields',
                hint=f'.fields("{component}", "word")',
            )
        return self._add(component, stream, "fields", fields)

    def all(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to every task."""
        return self._add(component, stream, "all")

    def global_(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """All tuples go to one task, number 0."""
        return self._add(component, stream, "global")

    def direct(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Whoever emits a tuple says which task it goes to: ``collector.emit_direct(task, values)``."""
        return self._add(component, stream, "direct")

    def none(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """It does not matter which task: as :meth:`shuffle`."""
        return self.shuffle(component, stream)

    def local_or_shuffle(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """As :meth:`shuffle`: where a task runs is Spark's business."""
        return self.shuffle(component, stream)

    def window(self, length: Duration | int, every: Duration | int | None = None) -> BoltDeclarer:
        """Give ``execute`` windows of tuples: so many, ``window(100, every=10)``, or so long, ``window("1 minute")``.

        Time is event time if the tuples have one, else the time of the epochs. Each task has its own windows.
        """
        declared, example = (
            self._declared,
            '.window(100), .window(100, every=10) or .window("1 minute", every="10 seconds")',
        )
        if isinstance(length, bool) or (every is not None and isinstance(length, int) != isinstance(every, int)):
            raise PlanError(
                "LS0196", f'the windows of bolt "{declared.name}" are {length!r} every {every!r}', hint=f"{example}."
            )
        unusual = (declared.tick_us, declared.on_error, declared.retries) != (None, "fail", RETRIES)
        if unusual or len(declared.streams) > 1:
            raise PlanError(
                "LS0196",
                f'bolt "{declared.name}" has windows, and ticks, retries=, on_error="skip" or further streams',
                why="a window is computed as a whole, when it is full, and gives tuples of one stream.",
                hint="leave them to a bolt that reads this one.",
            )
        declared.window = BoltWindow(length, every)
        return self

    def _add(self, component: str, stream: str, kind: Kind, fields: tuple[str, ...] = ()) -> BoltDeclarer:
        self._declared.groupings.append(Grouping(component, stream, kind, fields))
        return self

    def __repr__(self) -> str:
        return f"<bolt {self._declared.name}, {self._declared.tasks} tasks>"
