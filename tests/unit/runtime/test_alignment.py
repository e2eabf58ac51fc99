"""A source that is far ahead of others in event time waits for them, and nothing ever waits for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep import F
from lockstep.config import RunSettings
from lockstep.connect.protocols import Advance, Slice
from lockstep.runtime.decide.alignment import Ahead, held_back
from lockstep.runtime.decide.marks import TimeStep, time_steps
from lockstep.runtime.decide.proposing import Proposal, Proposer
from lockstep.store.protocols import Entry, Holder, Positions, Progress, Store
from lockstep.store.sqlite_store import open_store

S = 1_000_000
NOW_US = 1_700_000_000 * S
DAY_US = 86_400 * S
SOURCES = ("a", "b", "c", "d")


def _step(source: str, *meets: str) -> TimeStep:
    return TimeStep(f"{source}_time", (source,), 0, None, meets=meets)


BOTH = (_step("a", "b"), _step("b", "a"))


def _found(reached: Mapping[str, int | None], moving: Sequence[str] = ("a", "b")) -> dict[str, Ahead]:
    observed = {f"{source}_time": at for source, at in reached.items()}
    return held_back(BOTH, Entry(7, NOW_US - S, {}), observed, moving, NOW_US, max_ahead_us=DAY_US)


def test_a_source_that_is_too_far_ahead_of_one_with_records_to_read_is_held_back() -> None:
    old = NOW_US - 90 * DAY_US
    assert _found({"a": old, "b": old + DAY_US}) == {}
    assert _found({"a": old, "b": old + DAY_US + 1}) == {"b": Ahead("a", DAY_US + 1)}


def test_nobody_waits_for_a_source_that_has_nothing_to_read_or_never_had_a_record() -> None:
    old = NOW_US - 90 * DAY_US
    assert _found({"a": old, "b": old + 30 * DAY_US}, moving=["b"]) == {}
    assert _found({"a": None, "b": old + 30 * DAY_US}) == {}


def test_a_time_in_the_future_by_mistake_does_not_stop_its_source_while_the_others_are_live() -> None:
    assert _found({"a": NOW_US - 3600 * S, "b": NOW_US + 70 * 365 * DAY_US}) == {}


_TIMES = st.one_of(st.none(), st.integers(0, NOW_US + DAY_US))
_STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from(SOURCES), min_size=1, max_size=2), st.sets(st.sampled_from(SOURCES)), _TIMES),
    max_size=6,
)


@given(steps=_STEPS, moving=st.sets(st.sampled_from(SOURCES), min_size=1), ahead_us=st.integers(0, 40 * DAY_US))
def test_whenever_some_source_has_records_some_source_may_read(
    steps: list[tuple[set[str], set[str], int | None]], moving: set[str], ahead_us: int
) -> None:
    made = [
        TimeStep(f"t{number}", tuple(sorted(sources)), 0, None, meets=tuple(sorted(meets - sources)))
        for number, (sources, meets, _) in enumerate(steps)
    ]
    observed = {f"t{number}": at for number, (_, _, at) in enumerate(steps)}
    held = held_back(made, Entry(7, NOW_US - S, {}), observed, moving, NOW_US, ahead_us)
    assert moving - held.keys()


class History:
    """A source with all its records there from the start; the position is an index into their times."""

    def __init__(self, times: Sequence[int]) -> None:
        self.times = times

    def start(self) -> Positions:
        return {"0": 0}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        end = min(len(self.times), since["0"] + max(1, records_max))
        return Advance({"0": end}, end - since["0"], finished=end == len(self.times))

    def stop_here(self, now_us: int) -> None: ...

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        raise NotImplementedError

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def trim(self, positions: Positions) -> None: ...

    def close(self) -> None: ...


class PaperLedger:
    """As much of a store as sealing needs, without a disk."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def begin(self, replica: str, pid: int) -> Holder:
        return Holder(replica, pid)

    def fact(self, key: str) -> None:
        """Nobody steers."""

    def progress(self) -> list[Progress]:
        return []

    def entry(self, epoch: int) -> Entry:
        return self.entries[epoch]

    def seal(self, entry: Entry, holder: Holder) -> Entry:
        self.entries.append(entry)
        return entry


def _sealed(store: Store, histories: dict[str, History], settings: RunSettings) -> list[Entry]:
    """Seal until everything is read, with a new proposer for every epoch: all it knows is in the store."""
    holder, observed, entries = store.begin("r0", 1), dict[str, int | None](), list[Entry]()
    while not entries or any(entries[-1].cut[name]["0"] < len(one.times) for name, one in histories.items()):
        clock = partial(int, NOW_US + (1 + len(entries)) * S)
        proposer = Proposer(store, holder, histories, BOTH, settings, clock)
        proposer.ready(len(entries), observed)
        proposal = proposer.look(len(entries))
        assert isinstance(proposal, Proposal)
        entry = store.seal(proposal.entry, holder)
        assert entry.records > 0, "there is something to read, so something is read"
        before = entries[-1].cut if entries else {name: {"0": 0} for name in histories}
        observed = {
            f"{name}_time": max(one.times[before[name]["0"] : entry.cut[name]["0"]], default=None)
            for name, one in histories.items()
        }
        entries.append(entry)
    return entries


def test_a_small_history_waits_for_a_large_one_and_both_are_read_to_their_ends(tmp_path: Path) -> None:
    """200 days: a record an hour, and one every five minutes, in epochs of 400 records at most."""
    begun = NOW_US - 300 * DAY_US
    small, large = (range(begun, begun + 200 * DAY_US, step * S) for step in (3600, 300))
    store = open_store(tmp_path, "job")
    settings = RunSettings(epoch_interval_s=0, records_per_epoch_start=400)
    entries = _sealed(store, {"a": History(small), "b": History(large)}, settings)
    ahead = [_ahead_us(entry, small, large) for entry in entries]
    assert max(ahead) <= DAY_US + 200 * 3600 * S, "a day, and what one epoch holds"
    held = [entry for entry in entries if entry.held]
    assert held and all(list(entry.held) == ["a"] and list(entry.held["a"]) == ["b"] for entry in held)
    assert all(entry.active_us["a"] == entry.epoch_time_us for entry in held), "whoever waits is not idle"
    assert all(entry.records == 400 for entry in held), "the others have its share"
    store.close()


def _ahead_us(entry: Entry, small: Sequence[int], large: Sequence[int]) -> int:
    return small[entry.cut["a"]["0"] - 1] - large[entry.cut["b"]["0"] - 1]


@given(
    times=st.lists(
        st.lists(st.integers(NOW_US - 9 * DAY_US, NOW_US + 9 * DAY_US), max_size=40), min_size=2, max_size=2
    ),
    ahead_s=st.sampled_from([0, 3600, 86_400]),
    ordered=st.booleans(),
)
def test_any_two_histories_are_read_to_their_ends(times: list[list[int]], ahead_s: int, *, ordered: bool) -> None:
    settings = RunSettings(epoch_interval_s=0, records_per_epoch_start=6, max_ahead_s=ahead_s)
    both = [sorted(each) if ordered else each for each in times]
    if not any(both):
        return
    _sealed(cast("Store", PaperLedger()), {"a": History(both[0]), "b": History(both[1])}, settings)


def _stream(job: ls.Job, name: str) -> Any:
    return job.source(name, ls.journal(name, schema="k string, at timestamp"))


def test_sources_meet_where_their_records_wait_for_each_other_and_nowhere_else() -> None:
    job = ls.Job("meeting")
    a, b, c, d = (_stream(job, name).event_time("at", name=f"{name}_time") for name in SOURCES)
    e = _stream(job, "e")
    a.join(b.rename(at="at_b"), on="k", between=("0 seconds", "1 second"), name="joined").to(ls.files("1"))
    c.union(a).window(ls.tumbling("1 hour")).agg(n=F.count("*")).to(ls.files("2"))
    c.union(d).to(ls.files("3"))
    d.key_by("k").agg(n=F.count("*")).to(ls.files("4"))
    e.to(ls.files("5"))
    meets = {step.id: step.meets for step in time_steps(job.graph()) if not step.follows}
    assert meets == {"a_time": ("b", "c"), "b_time": ("a",), "c_time": ("a",), "d_time": ()}


def test_results_of_a_step_with_state_say_nothing_of_how_far_a_source_was_read() -> None:
    job = ls.Job("later")
    windows = _stream(job, "a").event_time("at", name="a_time").window(ls.tumbling("1 hour")).agg(n=F.count("*"))
    anew = windows.event_time("window_end", name="anew").with_columns(k="'x'")
    b = _stream(job, "b").event_time("at", name="b_time")
    anew.join(b, on="k", between=("0 seconds", "1 hour"), name="joined").to(ls.files("1"))
    meets = {step.id: step.meets for step in time_steps(job.graph()) if not step.follows}
    assert meets == {"a_time": ("b",), "anew": (), "b_time": ("a",)}
