"""Event time by partition: the slowest that is not idle counts, from sealed facts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep.runtime.decide.alignment import held_back
from lockstep.runtime.decide.marks import TimeStep, next_active, next_marks, next_partitions, time_steps
from lockstep.store.protocols import Entry
from lockstep.store.sealing_rules import from_text, to_text

S = 1_000_000
IDLE_S = 5
STEP = TimeStep("at", ("clicks",), out_of_order_us=0, idle_after_us=IDLE_S * S, by_partition=True)
Records = Mapping[str, Sequence[int]]
"""The event times of an epoch's records, by partition."""


class Ledger:
    """Epochs as they would be sealed, each written down and read again."""

    def __init__(self, partitions: Sequence[str], at_s: int = 1000, step: TimeStep = STEP) -> None:
        self.step = step
        self.observed: dict[str, int | None] = {}
        cut = {"clicks": dict.fromkeys(partitions, 0)}
        self.head = Entry(0, at_s * S, cut, {"at": None}, active_us={"clicks": at_s * S})

    def epoch(self, after_s: float = 1, new: Sequence[str] = (), **records: Sequence[int]) -> int | None:
        """The mark, in seconds, of an epoch with these records; ``p0=[5]`` is one of partition 0."""
        return self.seal(round(after_s * S), {name[1:]: times for name, times in records.items()}, new)

    def seal(self, after_us: int, records: Records, new: Sequence[str] = (), *, flows: bool = False) -> int | None:
        previous, now_us = self.head, self.head.epoch_time_us + after_us
        advanced = {"clicks": flows or any(records.values())}
        steps = (self.step,)
        marks = next_marks(steps, previous, self.observed, now_us, advanced)
        counts = {name: at + len(records.get(name, ())) for name, at in previous.cut["clicks"].items()}
        entry = Entry(
            previous.epoch + 1,
            now_us,
            {"clicks": {**counts, **dict.fromkeys(new, 0)}},
            marks,
            active_us=next_active(previous, advanced, now_us),
            partitions=next_partitions(steps, previous, self.observed, now_us, marks),
        )
        self.head = from_text(to_text(entry))
        newest = {f"at/{name}": max(times) * S for name, times in records.items() if times}
        self.observed = {"at": max(newest.values(), default=None), **newest}
        mark_us = marks["at"]
        return None if mark_us is None else mark_us // S


def test_the_slowest_partition_counts() -> None:
    ledger = Ledger(["0", "1"])
    assert ledger.epoch(p0=[90], p1=[10]) is None
    assert ledger.epoch(p0=[95], p1=[30]) == 10
    assert ledger.epoch(p1=[20]) == 30
    assert ledger.epoch(p0=[96], p1=[99]) == 30
    assert ledger.epoch() == 96


def test_a_partition_without_a_record_holds_time_until_it_is_idle() -> None:
    ledger = Ledger(["0", "1"])
    marks = [ledger.epoch(p0=[90 + second]) for second in range(8)]
    # In the sixth epoch it is known of the fifth that it had none, five seconds after the partition was taken up.
    assert marks == [None] * 5 + [94, 95, 96]


def test_a_quiet_partition_stops_holding_time_and_one_that_comes_back_holds_it_again() -> None:
    ledger = Ledger(["0", "1"])
    ledger.epoch(p0=[90], p1=[10])
    marks = [ledger.epoch(p0=[100 + second]) for second in range(8)]
    assert marks == [10] * 5 + [104, 105, 106]
    assert ledger.epoch(p0=[120], p1=[50]) == 107
    # What came while it was idle is past; from now on it is waited for.
    assert ledger.epoch(p0=[130], p1=[115]) == 107
    assert ledger.epoch(p0=[140], p1=[125]) == 115


def test_without_idleness_a_quiet_partition_is_waited_for_for_ever() -> None:
    ledger = Ledger(["0", "1"], step=TimeStep("at", ("clicks",), 0, None, by_partition=True))
    ledger.epoch(p0=[90], p1=[10])
    assert {ledger.epoch(9, p0=[100 + second]) for second in range(50)} == {10}


def test_when_all_are_quiet_time_goes_on_from_the_highest_at_the_pace_of_the_clock() -> None:
    ledger = Ledger(["0", "1"])
    ledger.epoch(p0=[90], p1=[10])
    assert [ledger.epoch() for _ in range(8)] == [10] * 5 + [90 + 6, 90 + 7, 90 + 8]


def test_when_all_records_are_dropped_on_the_way_what_the_partitions_reached_holds() -> None:
    ledger = Ledger(["0", "1", "2"])
    ledger.epoch(p0=[90], p1=[10])
    marks = [ledger.seal(S, {}, flows=True) for _ in range(8)]
    # Partition 2 flows, but a filter lets nothing through: it is idle as the others are, and time does not go on.
    assert marks[-3:] == [90, 90, 90]


def test_a_partition_that_is_new_holds_time_from_when_it_was_taken_up() -> None:
    ledger = Ledger(["0"])
    ledger.epoch(p0=[90])
    assert ledger.epoch(p0=[100], new=["1"]) == 90
    assert ledger.epoch(p0=[110], p1=[20]) == 90
    assert ledger.epoch(p0=[120], p1=[115]) == 90
    assert ledger.epoch() == 115


def test_however_long_an_epoch_takes_whoever_had_records_in_the_one_before_is_not_idle() -> None:
    ledger = Ledger(["0", "1"])
    for number in range(1, 6):
        mark = ledger.epoch(9, p0=[1000 * number], p1=[number])
        assert mark == (number - 1 or None)


def test_after_a_pause_of_the_job_no_partition_is_idle() -> None:
    ledger = Ledger(["0", "1"])
    ledger.epoch(p0=[90], p1=[10])
    assert ledger.epoch(3600, p0=[3690]) == 10
    # The backlog of the other one comes an epoch later.
    assert ledger.epoch(p0=[3691], p1=[12]) == 10
    assert ledger.epoch(p0=[3692], p1=[3600]) == 12


def test_a_source_that_is_held_back_is_not_idle() -> None:
    ledger = Ledger(["0", "1"])
    ledger.epoch(p0=[90], p1=[10])
    for _ in range(8):
        assert ledger.epoch() == 10
        ledger.head = replace(ledger.head, held={"clicks": {"others": 5}})


def test_a_ledger_that_knows_nothing_of_partitions_is_gone_on_with() -> None:
    ledger = Ledger(["0", "1"])
    ledger.head = Entry(7, 2000 * S, {"clicks": {"0": 5, "1": 5}}, {"at": 80 * S}, active_us={"clicks": 2000 * S})
    ledger.observed = {"at": 90 * S}
    assert ledger.epoch(p0=[100], p1=[70]) == 80
    assert ledger.epoch(p0=[101], p1=[95]) == 80
    assert ledger.epoch() == 95


def test_a_source_with_a_fast_partition_is_ahead_of_another_source() -> None:
    ledger = Ledger(["0", "1"])
    ledger.epoch(p0=[90], p1=[10])
    steps = (
        TimeStep("at", ("clicks",), 0, None, meets=("views",), by_partition=True),
        TimeStep("seen", ("views",), 0, None, meets=("clicks",)),
    )
    observed = {**ledger.observed, "seen": 20 * S}
    assert list(held_back(steps, ledger.head, observed, {"clicks", "views"}, 2000 * S, 50 * S)) == ["clicks"]


def test_a_thousand_partitions_take_some_thirty_bytes_each() -> None:
    names = [str(number) for number in range(1000)]
    ledger = Ledger(names)
    for second in range(40):
        busy = [name for name in names if int(name) % 7]
        ledger.seal(S, {name: [1_700_000_000 + second * 10 - int(name)] for name in busy})
    assert len(ledger.head.partitions["at"]) == 1000
    without = replace(ledger.head, partitions={})
    assert len(to_text(ledger.head)) - len(to_text(without)) < 32_000


@st.composite
def _lives(draw: st.DrawFn) -> list[tuple[int, dict[str, list[int]]]]:
    """Epochs of a topic: seconds since the one before, and the times of the records by partition, each in order."""
    at_s = {str(number): draw(st.integers(0, 500)) for number in range(draw(st.integers(1, 4)))}
    found = []
    for _ in range(draw(st.integers(1, 25))):
        records: dict[str, list[int]] = {}
        for name in sorted(draw(st.sets(st.sampled_from(sorted(at_s))))):
            steps = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))
            records[name] = []
            for step in steps:
                at_s[name] += step
                records[name].append(at_s[name])
        found.append((draw(st.sampled_from([1, 1, 1, 2, 4, 8])), records))
    return [(after_s, {name: each.get(name, []) for name in at_s}) for after_s, each in found]


@given(_lives())
def test_no_record_in_order_within_its_partition_is_late_unless_that_was_idle(
    life: list[tuple[int, dict[str, list[int]]]],
) -> None:
    partitions = sorted(life[0][1])
    ledger = Ledger(partitions)
    # Counted here in plain Python: when each had its last record, as far as the epochs before tell.
    last_s = dict.fromkeys(partitions, 1000)
    newest: dict[str, int] = {}
    was_idle: set[str] = set()
    now_s, marks = 1000, [0]
    for after_s, records in life:
        idle = {name for name in partitions if now_s - last_s[name] >= IDLE_S}
        was_idle |= idle
        now_s += after_s
        mark = ledger.seal(after_s * S, records) or 0
        late = [name for name, times in records.items() if any(time_s < mark for time_s in times)]
        assert set(late) <= was_idle
        assert mark >= marks[-1], "it never goes back"
        if not was_idle and len(newest) == len(partitions):
            assert mark == min(newest.values()), "nor is it behind the slowest"
        marks.append(mark)
        for name, times in records.items():
            if times:
                last_s[name], newest[name] = now_s, max(times[-1], newest.get(name, 0))


def _source(job: ls.Job, name: str, kind: str = "kafka") -> ls.Stream:
    schema = "user string, at timestamp"
    kafka = ls.kafka(name, servers="127.0.0.1:9092", schema=schema)
    return job.source(name, kafka if kind == "kafka" else ls.journal(name, schema=schema))


_ARRIVED = ls.journal("a", schema="n bigint", partitions=2, timestamp_column="came")


def _minutes(stream: ls.Stream) -> ls.Stream:
    return stream.event_time("at").window(ls.tumbling("1 minute")).agg(at=ls.F.max("at"))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda job: _source(job, "a"), True),
        (lambda job: _source(job, "a").filter("user <> ''").select("at", "user"), True),
        (lambda job: _source(job, "a").flat_map(lambda one: [one], schema="user string, at timestamp"), True),
        (lambda job: _source(job, "a", "journal"), False),
        (lambda job: job.source("a", ls.journal("a", schema="n bigint", partitions=2, timestamp_column="at")), True),
        (lambda job: job.source("a", ls.journal("a", schema="n bigint", timestamp_column="at")), True),
        (lambda job: job.source("a", _ARRIVED).select(at=ls.F.col("came")), False),
        (lambda job: _source(job, "a").union(_source(job, "b")), False),
        (lambda job: _source(job, "a").map_batches(lambda rows: rows, schema="user string, at timestamp"), False),
        (lambda job: _minutes(_source(job, "a")), False),
    ],
    ids=[
        *("topic", "selected", "flat-mapped", "journal", "arrival", "arrival in one partition", "another column"),
        *("union", "new batches", "with state"),
    ],
)
def test_time_goes_by_partition_where_each_record_is_known_to_be_of_one(
    made: Callable[[ls.Job], ls.Stream], *, expected: bool
) -> None:
    job = ls.Job("times")
    timed = made(job).event_time("at", name="timed")
    timed.window(ls.tumbling("1 second")).agg(n=ls.F.count("*")).to(ls.console())
    found = {step.id: step.by_partition for step in time_steps(job.graph())}
    assert found["timed"] is expected
