"""The whole demo as figures: what the terminal, the report and ``--json`` show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from lockstep.bench.demo.figures import BEFORE_S, Point, Span, curve, gap_across_s, span
from lockstep.bench.demo.part import Part
from lockstep.clock import US_PER_S


@dataclass(frozen=True)
class MeasuredPart:
    """One part, measured: before the first kill, and after each."""

    part: Part
    before: Span
    after: tuple[Span, ...]
    across_s: tuple[float, ...]
    """For each kill, the time between the epochs right before and right after it."""
    points: tuple[Point, ...]

    @property
    def zero_us(self) -> int:
        """The first kill: where the curves are laid on each other."""
        return self.part.kills[0].at_us

    @property
    def end_s(self) -> float:
        """When feeding ended, counted from the first kill."""
        return (self.part.end_us - self.zero_us) / US_PER_S

    @property
    def kills_s(self) -> list[float]:
        """The kills, counted from the first."""
        return [(kill.at_us - self.zero_us) / US_PER_S for kill in self.part.kills]


@dataclass(frozen=True)
class Row:
    """One line of the table, a text for each part."""

    label: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """Both parts and what is wrong with them, if anything."""

    parts: tuple[MeasuredPart, ...]
    took_s: float

    @property
    def complaints(self) -> list[str]:
        """Everything that is not as it was promised, with the part it was found in."""
        return [
            f"{_replicas(measured.part)}: {complaint}"
            for measured in self.parts
            for complaint in measured.part.complaints()
        ]

    @property
    def top_s(self) -> float:
        """The highest latency of all curves: their common scale."""
        return max((point.latency_s for measured in self.parts for point in measured.points), default=1.0)

    def titles(self) -> list[str]:
        """The heads of the columns."""
        return [_replicas(measured.part) for measured in self.parts]

    def rows(self) -> list[Row]:
        """The table."""
        return [Row(label, tuple(text(measured) for measured in self.parts)) for label, text in _ROWS]

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "ok": not self.complaints,
            "complaints": self.complaints,
            "took_s": round(self.took_s, 1),
            "parts": [_part_json(measured) for measured in self.parts],
        }


def measured(part: Part) -> MeasuredPart:
    """Measure one part. The consequences of a kill are looked for until the next one, or until feeding ends."""
    ends = [*(kill.at_us for kill in part.kills[1:]), part.end_us]
    first_us = part.kills[0].at_us - int(BEFORE_S * US_PER_S)
    seen = part.seen_epochs
    after = [span(seen, kill.at_us, end_us) for kill, end_us in zip(part.kills, ends, strict=True)]
    return MeasuredPart(
        part,
        before=span(seen, first_us, part.kills[0].at_us),
        after=tuple(after),
        across_s=tuple(gap_across_s(seen, kill.at_us) for kill in part.kills),
        points=tuple(
            point
            for point in curve([one for one in seen if one.seen_us <= part.end_us], part.kills[0].at_us)
            if point.at_s >= -BEFORE_S
        ),
    )


def seconds(value: float) -> str:
    """A time short enough for a table.

    >>> seconds(0.2345), seconds(12.34)
    ('0.23 s', '12.3 s')
    """
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _each(spans: Sequence[Span], name: str) -> str:
    return ", ".join(seconds(getattr(one, name)) for one in spans)


def _back(measured: MeasuredPart) -> str:
    return ", ".join("not awaited" if one is None else seconds(one) for one in measured.part.back_s)


def _digests(measured: MeasuredPart) -> str:
    part = measured.part
    if part.replicas == 1:
        return "-"
    return f"{part.digests_different} of {part.epochs_compared:,} epochs"


_ROWS = (
    ("latency before, p50", lambda one: seconds(one.before.latency_p50_s)),
    ("latency before, p99", lambda one: seconds(one.before.latency_p99_s)),
    ("latency after each kill, max", lambda one: _each(one.after, "latency_max_s")),
    ("latency after each kill, p50", lambda one: _each(one.after, "latency_p50_s")),
    ("longest gap before", lambda one: seconds(one.before.gap_max_s)),
    ("gap around each kill", lambda one: ", ".join(seconds(gap) for gap in one.across_s)),
    ("longest gap after each kill", lambda one: _each(one.after, "gap_max_s")),
    ("killed replica back after", _back),
    ("events in", lambda one: f"{one.part.fed.records:,}"),
    ("alerts out", lambda one: f"{one.part.comparison.published:,}"),
    ("alerts lost", lambda one: str(len(one.part.comparison.lost))),
    ("alerts twice", lambda one: str(len(one.part.comparison.repeated))),
    ("alerts wrong", lambda one: str(len(one.part.comparison.wrong))),
    ("digests that differ", _digests),
)


def _replicas(part: Part) -> str:
    return "one replica" if part.replicas == 1 else "two replicas"


def _part_json(measured: MeasuredPart) -> dict[str, object]:
    part = measured.part
    return {
        "replicas": part.replicas,
        "before": asdict(measured.before),
        "kills": [
            {**asdict(kill), "back_s": back_s, "gap_around_s": gap_s, "after": asdict(after)}
            for kill, back_s, gap_s, after in zip(
                part.kills, part.back_s, measured.across_s, measured.after, strict=True
            )
        ],
        "events": part.fed.records,
        "feeder_behind_s_max": part.fed.behind_s_max,
        "alerts_expected": part.comparison.expected,
        "alerts_published": part.comparison.published,
        "alerts_lost": len(part.comparison.lost),
        "alerts_repeated": len(part.comparison.repeated),
        "alerts_wrong": len(part.comparison.wrong),
        "epochs": len(part.seen_epochs),
        "epochs_compared": part.epochs_compared,
        "digests_different": part.digests_different,
        "latency_curve": [[round(point.at_s, 3), round(point.latency_s, 4)] for point in measured.points],
    }
