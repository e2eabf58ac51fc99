"""Windows of every kind that run in Python, with every kind of trigger, against the model of the unit tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import lockstep as ls
from lockstep import F
from lockstep.plan.triggers import AT_WATERMARK, UPDATES, Firing, Trigger
from tests.matrix.case import Case, Expected, Given, Row, Rows
from tests.matrix.clock import NEVER_US, epoch_time_us, micros, watermarks
from tests.matrix.inputs import events
from tests.matrix.jobs.rolling import in_order, total
from tests.matrix.jobs.windows import LATE_S, SECOND, timed, utc
from tests.unit.keyed.test_windows_triggers import Model
from tests.unit.keyed.turns_for_windows import Epoch, Event, Result

LISTED = "numbers array<bigint>, timing string"
Bounds = tuple[int | None, int | None]


def _listed(records: list[Any], window: Any) -> Row:
    return {"numbers": [record.n for record in records], "timing": window.timing}


def _regular(size_s: int, every_s: int, offset_s: int = 0) -> Callable[[int | None], list[Bounds]]:
    def windows_of(at_us: int | None) -> list[Bounds]:
        if at_us is None:
            return []
        last = at_us - (at_us - offset_s * SECOND) % (every_s * SECOND)
        starts = range(last, at_us - size_s * SECOND, -every_s * SECOND)
        return [(start, start + size_s * SECOND) for start in starts]

    return windows_of


class Halves(ls.WindowAssigner):
    """Ten seconds, and the half of them that a record is in."""

    def assign(self, record: Any) -> list[tuple[datetime, datetime]]:
        if record.at is None:
            return []
        whole = record.at.replace(second=record.at.second // 10 * 10, microsecond=0)
        half = record.at.replace(second=record.at.second // 5 * 5, microsecond=0)
        return [(whole, whole + timedelta(seconds=10)), (half, half + timedelta(seconds=5))]


def _halves(at_us: int | None) -> list[Bounds]:
    return [] if at_us is None else [*_regular(10, 10)(at_us), *_regular(5, 5)(at_us)]


def _one_window(at_us: int | None) -> list[Bounds]:
    del at_us
    return [(None, None)]


@dataclass(frozen=True)
class Kind:
    """A window and a trigger as people write them, and as the model knows them."""

    window: Any
    windows_of: Callable[[int | None], list[Bounds]]
    written: Any = None
    model: Trigger = AT_WATERMARK
    purge: bool = False
    updates: bool = False
    lateness_s: int = 0
    clock: Any = "event"
    late_to_side: bool = False


TUMBLING, SLIDING, GLOBAL = ls.tumbling("10 seconds"), ls.sliding("10 seconds", every="5 seconds"), ls.global_()
COUNT, EVERY = Firing(count=3), Firing(every_us=2 * SECOND)
EVERY_EVENT = Firing(every_us=4 * SECOND, time="event")
BY_END = {
    "lists": Kind(
        SLIDING,
        _regular(10, 5),
        ls.at_watermark(early=ls.on_count(4), late=ls.on_count(1)),
        Trigger(early=Firing(count=4), late=Firing(count=1)),
        lateness_s=6,
        late_to_side=True,
    ),
    "own": Kind(Halves(), _halves),
    "early": Kind(
        TUMBLING,
        _regular(10, 10),
        ls.early(every="2 seconds", count=2),
        Trigger(early=Firing(every_us=2 * SECOND, count=2)),
    ),
    "late": Kind(TUMBLING, _regular(10, 10), ls.late(count=1), Trigger(late=Firing(count=1)), lateness_s=8),
}
COUNTED = Trigger(at_end=False, early=COUNT, late=COUNT)
REPEATED = {
    "on_count": Kind(TUMBLING, _regular(10, 10), ls.on_count(3), COUNTED),
    "purged": Kind(
        TUMBLING, _regular(10, 10), ls.every("2 seconds"), Trigger(early=EVERY, late=EVERY, purge=True), purge=True
    ),
    "by_event": Kind(
        TUMBLING,
        _regular(10, 10),
        ls.every("4 seconds", time="event"),
        Trigger(early=EVERY_EVENT, late=EVERY_EVENT),
    ),
    "forever": Kind(GLOBAL, _one_window, ls.on_count(3), COUNTED),
    "updated": Kind(GLOBAL, _one_window, model=UPDATES, updates=True),
    "by_epochs": Kind(ls.tumbling("3 seconds", time="processing"), _regular(3, 3), clock="epoch"),
    "by_epochs_slid": Kind(
        ls.sliding("4 seconds", every="2 seconds", time="processing"), _regular(4, 2), clock="epoch"
    ),
}


def _add(by_key: Any, name: str, kind: Kind) -> None:
    stream = by_key.window(kind.window)
    if kind.written is not None:
        stream = stream.trigger(kind.written, purge=kind.purge)
    if kind.updates:
        stream = stream.updates()
    if kind.lateness_s:
        stream = stream.allowed_lateness(f"{kind.lateness_s} seconds")
    if kind.late_to_side:
        stream = stream.late_to_side()
    made = stream.process(_listed, schema=LISTED, name=f"{name}_window")
    made.to(ls.files(f"out/{name}"), name=name)
    if kind.late_to_side:
        made.side("late").select("k", "n", "at").to(ls.files(f"out/{name}_late"), name=f"{name}_late")


def _expected(given: Given, kinds: dict[str, Kind]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    rows = [row for _, row in given.records()]
    for name, kind in kinds.items():
        model = Model(_epochs(given), kind.model, kind.lateness_s * SECOND, kind.clock, kind.windows_of)
        found[name] = [_row(one, rows) for one in model.results()]
        if kind.late_to_side:
            late = [(epoch, rows[event.value]) for epoch, event in model.late]
            found[f"{name}_late"] = [(epoch, row["k"], row["n"], row["at"]) for epoch, row in late]
    return found


def _row(one: Result, rows: Sequence[Row]) -> tuple[Any, ...]:
    edges = [None if edge is None else utc(edge) for edge in (one.start_us, one.end_us)]
    return (one.epoch, one.key, *edges, [rows[place]["n"] for place in one.values], one.timing)


def _epochs(given: Given) -> list[Epoch]:
    """The input as the model takes it: a record's value is its place. After the input, some epochs without records."""
    passed, place, made = watermarks(given, {"events": LATE_S}), 0, []
    for number in range(given.end + 5):
        records = given.inputs["events"][number] if number < given.end else []
        events = []
        for row in records:
            events.append(Event(row["k"], None if row["at"] is None else micros(row["at"]), place))
            place += 1
        now_us = passed[min(number, len(passed) - 1)]
        made.append(Epoch(None if now_us == NEVER_US else now_us, epoch_time_us(number), tuple(events)))
    return made


def by_end(_: Given) -> ls.Job:
    """Windows that give their result when they end, and some before or after."""
    job = ls.Job("own-windows")
    by_key = timed(job).key_by("k")
    for name, kind in BY_END.items():
        _add(by_key, name, kind)
    return job


def repeated(_: Given) -> ls.Job:
    """Windows that give results again and again."""
    job = ls.Job("repeated-windows")
    by_key = timed(job).key_by("k")
    for name, kind in REPEATED.items():
        _add(by_key, name, kind)
    return job


def _longest(one: Any, two: Any) -> Any:
    return max(one, two, key=lambda record: (len(str(record.n)), record.n or 0))


class Middle(ls.WindowAggregator):
    """How many numbers there are, and the one in the middle; two sessions become one."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], record: Any) -> list[int]:
        return sorted([*accumulator, record.n or 0])

    def finish(self, accumulator: list[int]) -> dict[str, int]:
        return {"count": len(accumulator), "middle": accumulator[len(accumulator) // 2]}

    def merge(self, accumulator: list[int], later: list[int]) -> list[int]:
        return sorted([*accumulator, *later])


class Telling(ls.WindowAggregator):
    """The numbers in order; what two sessions tell cannot be made one."""

    def create(self) -> str:
        return ""

    def add(self, accumulator: str, record: Any) -> str:
        return f"{accumulator}{record.n},"

    def finish(self, accumulator: str) -> str:
        return accumulator


def aggregators(_: Given) -> ls.Job:
    """Aggregates of the user's own, and whole records."""
    job = ls.Job("window-aggregators")
    by_key = timed(job).key_by("k")
    schema, tumbling, session = "count bigint, middle bigint", by_key.window(TUMBLING), by_key.window(ls.session("3 s"))
    tumbling.aggregate(Middle(), schema=schema).to(ls.files("out/middles"), name="middles")
    session.aggregate(Middle(), schema=schema, name="merging").to(ls.files("out/merged"), name="merged")
    session.aggregate(Telling(), schema="told string", name="telling").to(ls.files("out/told"), name="told")
    tumbling.max_by("n").select("k", "window_start", "n", "at").to(ls.files("out/largest"), name="largest")
    tumbling.min_by("n").select("k", "window_start", "n", "at").to(ls.files("out/smallest"), name="smallest")
    return job


def aggregators_expected(given: Given) -> Expected:
    """Plain lists."""
    rows = [row for _, row in given.records()]
    tumbling = Model(_epochs(given), AT_WATERMARK, 0, "event", _regular(10, 10)).results()
    sessions = [row[:5] for row in _sessions(given, 3 * SECOND)]
    windows = [_row(one, rows)[:5] for one in tumbling]
    best = {
        name: [_of_best(one, rows, sign)[:1] for one in tumbling] for name, sign in (("largest", 1), ("smallest", -1))
    }
    return {
        "middles": [(*where, *_middle(numbers)) for *where, numbers in windows],
        "merged": [(*where, *_middle(numbers)) for *where, numbers in sessions],
        "told": [(*where, "".join(f"{number}," for number in numbers)) for *where, numbers in sessions],
        **{name: [(*row[:3], *row[4:]) for found in each for row in found] for name, each in best.items()},
    }


def _middle(numbers: list[int | None]) -> tuple[int, int]:
    return len(numbers), sorted(number or 0 for number in numbers)[len(numbers) // 2]


def contents(_: Given) -> ls.Job:
    """What a window can compute: aggregates that need the order, reductions, folds; over sessions and counts too."""
    job = ls.Job("window-contents")
    by_key = timed(job).key_by("k")
    counted = by_key.window(ls.count(4, every=2))
    counted.agg(total=F.sum("x"), last=F.last("n")).select("k", "total", "last").to(
        ls.files("out/counts"), name="counts"
    )
    by_key.window(ls.count(3)).fold(0, lambda held, one: held + (one.n or 0), schema="total bigint").select(
        "k", "total"
    ).to(ls.files("out/threes"), name="threes")
    session = by_key.window(ls.session("3 seconds"))
    session.process(_listed, schema=LISTED, name="sessions").to(ls.files("out/sessions"), name="session_rows")
    by_epochs = by_key.window(ls.session("2 seconds", time="processing")).process(_listed, schema=LISTED, name="visits")
    by_epochs.select("k", "numbers").to(ls.files("out/visits"), name="visit_rows")
    turns = by_key.window(Turns()).process(_listed, schema=LISTED, name="turns")
    turns.select("k", "window_end", "numbers").to(ls.files("out/turns"), name="turn_rows")
    by_key.window(TUMBLING).reduce(_longest).select("k", "window_start", "n").to(
        ls.files("out/longest"), name="longest"
    )
    by_key.window(TUMBLING).top(2, by="n").select("k", "window_start", "rank", "n", "at").to(
        ls.files("out/best"), name="best"
    )
    return job


def contents_expected(given: Given) -> Expected:
    """Plain lists."""
    tumbling = Model(_epochs(given), AT_WATERMARK, 0, "event", _regular(10, 10)).results()
    rows = [row for _, row in given.records()]
    longest = [
        (one.epoch, one.key, utc(one.start_us or 0), _of_longest([rows[place]["n"] for place in one.values]))
        for one in tumbling
    ]
    visits = [(epoch, key, numbers) for epoch, key, _, _, numbers, _ in _sessions(given, 2 * SECOND, by_epochs=True)]
    return {
        **_counts(given),
        "session_rows": _sessions(given, 3 * SECOND),
        "visit_rows": visits,
        "turn_rows": _turns(given),
        "longest": longest,
        "best": [row for one in tumbling for row in _of_best(one, rows)],
    }


def _of_best(one: Result, rows: Sequence[Row], sign: int = 1) -> Rows:
    """Two records of a window; of equal ones the earlier."""
    known = [rows[place] for place in one.values if rows[place]["n"] is not None]
    best = sorted(known, key=lambda row: -sign * row["n"])[:2]
    return [(one.epoch, one.key, utc(one.start_us or 0), rank, row["n"], row["at"]) for rank, row in enumerate(best, 1)]


class Turns(ls.WindowAssigner):
    """Windows of epoch time, chosen by a record's number."""

    time = "processing"

    def assign(self, record: Any) -> list[tuple[datetime, datetime]]:
        start = utc(turn_start_us(record.n))
        return [(start, start + timedelta(microseconds=TURN_US))]


TURN_US = 3 * SECOND


def turn_start_us(number: int | None) -> int:
    """One of four turns of three seconds each."""
    return epoch_time_us(0) + abs(number or 0) % 4 * TURN_US


def _turns(given: Given) -> Rows:
    """A turn is over when its epoch time has come; what comes then is late."""
    held: dict[tuple[Any, int], list[Row]] = defaultdict(list)
    for epoch, row in given.records():
        end_us = turn_start_us(row["n"]) + TURN_US
        if end_us > epoch_time_us(epoch):
            held[row["k"], end_us].append(row)
    return [
        (next(e for e in range(100) if epoch_time_us(e) >= end_us), key, utc(end_us), [r["n"] for r in in_order(rows)])
        for (key, end_us), rows in held.items()
    ]


def _of_longest(numbers: list[int | None]) -> int | None:
    """As the reduction says: of two that are equal the first one stays."""
    found = numbers[0]
    for number in numbers[1:]:
        found = max(found, number, key=lambda one: (len(str(one)), one or 0))
    return found


def _counts(given: Given) -> dict[str, Rows]:
    order: dict[Any, list[tuple[int, Row]]] = defaultdict(list)
    for epoch, records in enumerate(given.inputs["events"]):
        for row in in_order(records):
            order[row["k"]].append((epoch, row))
    counts: Rows = []
    threes: Rows = []
    for key, rows in order.items():
        for end in range(2, len(rows) + 1, 2):
            members = in_order([row for _, row in rows[max(0, end - 4) : end]])
            counts.append((rows[end - 1][0], key, total([row["x"] for row in members]), members[-1]["n"]))
        for end in range(3, len(rows) + 1, 3):
            threes.append((rows[end - 1][0], key, sum(row["n"] or 0 for _, row in rows[end - 3 : end])))
    return {"counts": counts, "threes": threes}


def _sessions(given: Given, gap_us: int, *, by_epochs: bool = False) -> Rows:
    """Runs without a gap; a record is late if the session that it would be in is over."""
    live: dict[Any, list[Event]] = defaultdict(list)
    rows = [row for _, row in given.records()]
    found: Rows = []
    for number, epoch in enumerate(_by_epoch_time(given) if by_epochs else _epochs(given)):
        now_us = NEVER_US if epoch.watermark_us is None else epoch.watermark_us
        for key in live:
            for run in _runs(live[key], gap_us):
                end_us = (run[-1].at_us or 0) + gap_us
                if end_us <= now_us:
                    values = [row["n"] for row in in_order([rows[one.value] for one in run])]
                    found.append((number, key, utc(run[0].at_us or 0), utc(end_us), values, "on_time"))
                    live[key] = [one for one in live[key] if one not in run]
        for event in sorted(epoch.events, key=lambda one: (one.at_us is not None, one.at_us or 0)):
            if event.at_us is None:
                continue
            run = next(run for run in _runs([*live[event.key], event], gap_us) if event in run)
            if (run[-1].at_us or 0) + gap_us > now_us:
                live[event.key].append(event)
    return found


def _by_epoch_time(given: Given) -> list[Epoch]:
    """Epochs whose clock is epoch time, for records and for windows."""
    return [
        Epoch(one.time_us, one.time_us, tuple(event._replace(at_us=one.time_us) for event in one.events))
        for one in _epochs(given)
    ]


def _runs(events: list[Event], gap_us: int) -> list[list[Event]]:
    runs: list[list[Event]] = []
    for event in sorted(events, key=lambda one: (one.at_us or 0, one.value)):
        if runs and (event.at_us or 0) - (runs[-1][-1].at_us or 0) <= gap_us:
            runs[-1].append(event)
        else:
            runs.append([event])
    return runs


CASES = [
    Case("windows that end", "windows", by_end, events, lambda given: _expected(given, BY_END)),
    Case("windows that repeat", "windows", repeated, events, lambda given: _expected(given, REPEATED)),
    Case("contents of windows", "windows", contents, events, contents_expected),
    Case("aggregators of windows", "windows", aggregators, events, aggregators_expected),
]
