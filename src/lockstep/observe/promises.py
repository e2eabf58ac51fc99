"""The promises of the design, each a predicate over plain data: what it finds broken, in words; an empty list is kept.

The same functions stand in production asserts, in the simulator and in the chaos checker, so their arguments are tuples
and mappings that any of them can make. Every violation names the epoch and whoever is involved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

Moment = TypeVar("Moment", int, float)
CutLike = Mapping[str, Mapping[str, int]]
"""source -> partition -> first position not read, as in the ledger."""


def agreement(entries_used: Iterable[tuple[str, int, Hashable]]) -> list[str]:
    """No two replicas ever use different entries for one epoch. Takes (replica, epoch, entry).

    >>> agreement([("r0", 1, "cut A"), ("r1", 1, "cut A"), ("r0", 2, "cut B")])
    []
    >>> agreement([("r0", 1, "cut A"), ("r1", 1, "cut B")])
    ["agreement: epoch 1 is 'cut A' to r0 and 'cut B' to r1"]
    """
    first: dict[int, tuple[str, Hashable]] = {}
    violations = []
    for replica, epoch, entry in entries_used:
        who, held = first.setdefault(epoch, (replica, entry))
        if entry != held:
            violations.append(f"agreement: epoch {epoch} is {held!r} to {who} and {entry!r} to {replica}")
    return violations


def order(published_epochs: Sequence[int]) -> list[str]:
    """A sink's epochs are published in order, without gaps. Takes them as they became visible.

    >>> order([4, 5, 6])
    []
    >>> order([4, 6, 5])
    ['order: epoch 6 was published after 4', 'order: epoch 5 was published after 6']

    An epoch that comes twice breaks :func:`once`, and is not reported here again.
    """
    distinct = list(dict.fromkeys(published_epochs))
    pairs = pairwise(distinct)
    return [f"order: epoch {after} was published after {before}" for before, after in pairs if after != before + 1]


def once(published_epochs: Iterable[int]) -> list[str]:
    """A sink holds each epoch at most once, whatever crashed when.

    >>> once([0, 1, 2])
    []
    >>> once([0, 1, 1, 1])
    ['once: epoch 1 was published 3 times']
    """
    times: dict[int, int] = {}
    for epoch in published_epochs:
        times[epoch] = times.get(epoch, 0) + 1
    return [f"once: epoch {epoch} was published {count} times" for epoch, count in sorted(times.items()) if count > 1]


def equality(digests: Iterable[tuple[int, str, str, str, str]]) -> list[str]:
    """Digests reported for an epoch are equal. Takes (epoch, sink, version, replica, digest).

    Different versions of a job's code may answer differently, so only digests of one version are compared.

    >>> equality([(1, "out", "v1", "r0", "aa"), (1, "out", "v1", "r1", "aa"), (1, "out", "v2", "r2", "bb")])
    []
    >>> equality([(1, "out", "v1", "r0", "aa"), (1, "out", "v1", "r1", "bb")])
    ['equality: epoch 1, sink "out": r0 computed aa, r1 computed bb']
    """
    first: dict[tuple[int, str, str], tuple[str, str]] = {}
    violations = []
    for epoch, sink, version, replica, digest in digests:
        who, held = first.setdefault((epoch, sink, version), (replica, digest))
        if digest != held:
            violations.append(
                f'equality: epoch {epoch}, sink "{sink}": {who} computed {held}, {replica} computed {digest}'
            )
    return violations


def completeness(cuts: Sequence[tuple[int, CutLike]], published_epochs: Iterable[int] | None = None) -> list[str]:
    """Every input record is in exactly one epoch; at the end of a run, every sealed epoch was published.

    Takes (epoch, cut) in order. An epoch begins where the one before it ends, so a record is in exactly one of them if
    no epoch is missing, no position moves back and no partition is forgotten. A source or partition may be new.

    >>> completeness([(0, {"in": {"0": 5}}), (1, {"in": {"0": 5, "1": 2}})])
    []
    >>> completeness([(0, {"in": {"0": 5}}), (1, {"in": {"0": 4}})])
    ['completeness: epoch 1 moves in/0 back from 5 to 4: records would be in two epochs']
    >>> completeness([(0, {}), (1, {})], published_epochs=[0])
    ['completeness: epoch 1 was sealed and never published']
    """
    violations = []
    for (before, old), (epoch, new) in pairwise(cuts):
        if epoch != before + 1:
            violations.append(f"completeness: epoch {epoch} follows {before}: what lies between has no epoch")
        violations += _moved_back(epoch, old, new)
    if published_epochs is not None:
        missing = sorted({epoch for epoch, _ in cuts} - set(published_epochs))
        violations += [f"completeness: epoch {epoch} was sealed and never published" for epoch in missing]
    return violations


def _moved_back(epoch: int, old: CutLike, new: CutLike) -> list[str]:
    violations = []
    for source, positions in old.items():
        for partition, position in positions.items():
            now = new.get(source, {}).get(partition)
            name = f"{source}/{partition}"
            if now is None:
                violations.append(f"completeness: epoch {epoch} forgets {name}, which had come to {position}")
            elif now < position:
                violations.append(
                    f"completeness: epoch {epoch} moves {name} back from {position} to {now}: "
                    "records would be in two epochs"
                )
    return violations


def readiness(healthy: Mapping[str, int], head: int, lead_epochs_max: int) -> list[str]:
    """A replica counted as healthy is within the lead. Takes replica -> newest epoch it has committed.

    >>> readiness({"r0": 90, "r1": 85}, head=90, lead_epochs_max=5)
    []
    >>> readiness({"r0": 90, "r1": 84}, head=90, lead_epochs_max=5)
    ['readiness: r1 counts as healthy at epoch 84, 6 behind the head 90 (at most 5)']
    """
    return [
        f"readiness: {replica} counts as healthy at epoch {epoch}, {head - epoch} behind the head {head} "
        f"(at most {lead_epochs_max})"
        for replica, epoch in sorted(healthy.items())
        if head - epoch > lead_epochs_max
    ]


def progress(
    published_us: Sequence[int],
    live_us: Iterable[tuple[int, int]],
    gap_us_max: int,
    able_us: Iterable[tuple[int, int]] | None = None,
) -> list[str]:
    """While one replica lives, epochs go on being published.

    Takes when epochs were published, and (from, to) for each time a replica was up and within the lead; these may
    overlap. Nothing longer than ``gap_us_max`` may pass without a publication while any of them lives. Where it is
    known when one of them was ``able`` to go on (its disk answered), only that time counts.

    >>> progress([10, 20, 30], live_us=[(0, 22), (15, 35)], gap_us_max=10)
    []
    >>> progress([10, 30], live_us=[(0, 40)], gap_us_max=15)
    ['progress: nothing was published from 10 to 30 us although a replica lived']
    >>> progress([10, 30], live_us=[(0, 40)], gap_us_max=15, able_us=[(0, 16), (25, 40)])
    []
    """
    able = None if able_us is None else _joined(able_us)
    violations = []
    for start, end in _joined(live_us):
        stops = [start, *sorted(at for at in published_us if start < at < end), end]
        violations += [
            f"progress: nothing was published from {before} to {after} us although a replica lived"
            for before, after in pairwise(stops)
            if (after - before if able is None else _length_us(_within(able, before, after))) > gap_us_max
        ]
    return violations


def _within(spans: Iterable[tuple[Moment, Moment]], start: Moment, end: Moment) -> list[tuple[Moment, Moment]]:
    """The parts of ``spans`` between two moments."""
    return [(max(begin, start), min(stop, end)) for begin, stop in spans if begin < end and stop > start]


def _length_us(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def _joined(spans: Iterable[tuple[Moment, Moment]]) -> list[tuple[Moment, Moment]]:
    """Overlapping or touching spans as one."""
    joined: list[tuple[Moment, Moment]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def without(
    spans: Iterable[tuple[Moment, Moment]], excused: Iterable[tuple[Moment, Moment]]
) -> list[tuple[Moment, Moment]]:
    """What is left of ``spans`` outside of ``excused``: times in which nobody could have done anything.

    >>> without([(0, 10), (20, 30)], [(5, 22)])
    [(0, 5), (22, 30)]
    """
    left = _joined(spans)
    for start, end in excused:
        left = [
            piece
            for begin, stop in left
            for piece in ((begin, min(stop, start)), (max(begin, end), stop))
            if piece[0] < piece[1]
        ]
    return left


def incarnation(who: str, deed: str, *, is_live: bool) -> list[str]:
    """Only a live incarnation acts for a replica: whoever was replaced or retired seals nothing.

    >>> incarnation("r0.2", "seals epoch 7", is_live=True)
    []
    >>> incarnation("r0.1", "seals epoch 7", is_live=False)
    ['incarnation: r0.1 seals epoch 7 although it was retired']
    """
    return [] if is_live else [f"incarnation: {who} {deed} although it was retired"]


def spares(booting: Sequence[str], awaited: Sequence[str]) -> list[str]:
    """A spare boots only while no replica has to: one process boots at a time, and replicas come first.

    >>> spares(["spare 1"], awaited=[])
    []
    >>> spares(["spare 1"], awaited=["r0"])
    ['spares: spare 1 boots although r0 has to come up']
    """
    return [f"spares: {one} boots although {', '.join(awaited)} has to come up" for one in booting if awaited]


def given_once(process: str, replicas: Sequence[str]) -> list[str]:
    """A process is one replica at most.

    >>> given_once("process 7", ["r0"]), given_once("process 7", ["r0", "r1"])
    ([], ['spares: process 7 was told to be r0 and r1'])
    """
    return [f"spares: {process} was told to be {' and '.join(replicas)}"] if len(replicas) > 1 else []


def one_process(replica: str, running: Sequence[int]) -> list[str]:
    """A replica is started only if no process is it. Takes the processes that are, by their ids.

    >>> one_process("r0", []), one_process("r0", [7])
    ([], ['adoption: r0 is started although process 7 is r0'])
    """
    return [f"adoption: {replica} is started although process {pid} is {replica}" for pid in running]


def lease(name: str, held_by: str, taken_by: str, silent_s: float, session_s: float) -> list[str]:
    """A lease changes hands when it was given back, or when nothing was heard of its holder for a whole session.

    >>> lease("supervisor", "h1", "h2", silent_s=4.0, session_s=4.0)
    []
    >>> lease("supervisor", "h1", "h2", silent_s=0.5, session_s=4.0)
    ['lease: h2 takes "supervisor" although h1 has it and was heard 0.5 s ago']
    """
    kept = silent_s < session_s
    return [f'lease: {taken_by} takes "{name}" although {held_by} has it and was heard {silent_s:.1f} s ago'] * kept


def placement(replica: str, host: str, beside: Mapping[str, Sequence[str]]) -> list[str]:
    """No two replicas of a job on one host while another has room. Takes the replicas on each host that has room.

    >>> placement("r1", "h2", {"h1": ["r0"], "h2": []})
    []
    >>> placement("r1", "h1", {"h1": ["r0"], "h2": []})
    ['placement: r1 is started on h1 beside r0 although h2 has room']
    """
    others = [one for one in beside.get(host, ()) if one != replica]
    free = [name for name, there in beside.items() if not any(one != replica for one in there)]
    if not others or not free:
        return []
    return [f"placement: {replica} is started on {host} beside {', '.join(others)} although {free[0]} has room"]


def time(epoch_times_us: Sequence[tuple[int, int]]) -> list[str]:
    """Epoch time moves on with every epoch, whatever the clocks do. Takes (epoch, epoch time) in order.

    >>> time([(1, 100), (2, 101)])
    []
    >>> time([(1, 100), (2, 100)])
    ['time: epoch 2 is at 100 us, epoch 1 before it at 100 us']
    """
    return [
        f"time: epoch {epoch} is at {at_us} us, epoch {before} before it at {before_us} us"
        for (before, before_us), (epoch, at_us) in pairwise(epoch_times_us)
        if at_us <= before_us
    ]


def marks(
    epoch: int,
    found: Mapping[str, int | None],
    before: Mapping[str, int | None],
    newest_us: Mapping[str, int | None],
    exact: Iterable[str] = (),
) -> list[str]:
    """Each mark is the highest event time of all records before its epoch, and none moves back.

    Takes the marks of ``epoch`` and of the one before it, and the highest event times as computed from the records;
    where time goes by partition, those of the slowest. The mark of a quiet source may be ahead of its records, and so
    may one with a quiet partition; of the steps in ``exact`` it is not.

    >>> marks(7, {"at": 90}, {"at": 80}, {"at": 90}, exact=["at"])
    []
    >>> marks(7, {"at": 80}, {"at": 80}, {"at": 90})
    ['marks: epoch 7 has "at" at 80, its records before are at 90']
    """
    violations = []
    for step, mark in found.items():
        newest = newest_us.get(step)
        if (mark or 0) < (newest or 0) or (step in exact and mark != newest):
            violations.append(f'marks: epoch {epoch} has "{step}" at {mark}, its records before are at {newest}')
        if (mark or 0) < (before.get(step) or 0):
            violations.append(f'marks: epoch {epoch} moves "{step}" back')
    return violations


def retention(who: str, needed: Mapping[str, int], kept_from: Mapping[str, int]) -> list[str]:
    """Nothing is forgotten that a replica still needs. Takes, per place, from where it reads and from where it is kept.

    >>> retention("r1.1", {"clicks/0": 40}, {"clicks/0": 40})
    []
    >>> retention("r1.1", {"clicks/0": 40}, {"clicks/0": 41})
    ['retention: r1.1 needs clicks/0 from 40 on, which is kept from 41 on']
    """
    return [
        f"retention: {who} needs {place} from {position} on, which is kept from {kept_from[place]} on"
        for place, position in needed.items()
        if position < kept_from.get(place, 0)
    ]


def turns(before: tuple[int, int, int], after: tuple[int, int, int]) -> list[str]:
    """Who publishes changes by a sealed entry of a newer turn alone. Takes (epoch, generation, turn) of two in a row.

    >>> turns((6, 1, 0), (7, 2, 1)), turns((7, 2, 1), (8, 2, 1))
    ([], [])
    >>> turns((7, 2, 1), (8, 1, 0))
    ['generation: epoch 8 names generation 1 of turn 0 after generation 2 of turn 1']
    """
    (_, old, turn), (epoch, new, newer) = before, after
    held = newer > turn or (newer == turn and new == old)
    return (
        []
        if held
        else [f"generation: epoch {epoch} names generation {new} of turn {newer} after generation {old} of turn {turn}"]
    )


def generation(epoch: int, sink: str, who: str, published: int, named: int) -> list[str]:
    """An epoch is published by the generation that its sealed entry names.

    >>> generation(7, "out", "r2.1", published=2, named=2)
    []
    >>> generation(7, "out", "r2.1", published=2, named=1)
    ['generation: r2.1 publishes epoch 7 to out with the results of generation 2, and its entry names 1']
    """
    if published == named:
        return []
    return [
        f"generation: {who} publishes epoch {epoch} to {sink} with the results of generation {published}, "
        f"and its entry names {named}"
    ]


def lineage(who: str, generation: int, own: Hashable, published: Hashable) -> list[str]:
    """All who have the results of a generation go back to the same state of the one before.

    >>> lineage("r0.2", 2, "after 50", "after 50")
    []
    >>> lineage("r0.2", 2, "after 50", "after 60")
    ["equality: r0.2 has the results of generation 2 'after 50', published are those 'after 60'"]
    """
    if own == published:
        return []
    return [f"equality: {who} has the results of generation {generation} {own!r}, published are those {published!r}"]


def operation_steps(number: int, before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Each step of an operation is done once, and none is forgotten. Takes the steps' names as they were and are.

    >>> operation_steps(3, ["join"], ["join", "replace r0"])
    []
    >>> operation_steps(3, ["join", "replace r0"], ["join"])
    ['operations: operation 3 forgets that replace r0 was done']
    >>> operation_steps(3, ["join"], ["join", "replace r0", "join"])
    ['operations: operation 3 does join twice']
    """
    forgotten = [name for name in before if name not in after]
    twice = sorted({name for name in after if after.count(name) > 1})
    return [
        *(f"operations: operation {number} forgets that {name} was done" for name in forgotten),
        *(f"operations: operation {number} does {name} twice" for name in twice),
    ]


def operation_over(number: int, before: str, after: str | None) -> list[str]:
    """An operation is not lost, and one that is over stays so. Takes its state as it was (if over) and is.

    >>> operation_over(3, "done", "done"), operation_over(3, "", "running")
    ([], [])
    >>> operation_over(3, "done", "rolling-back"), operation_over(3, "", None)
    (['operations: operation 3 was done, and is rolling-back'], ['operations: operation 3 is lost'])
    """
    if after is None:
        return [f"operations: operation {number} is lost"]
    return [f"operations: operation {number} was {before}, and is {after}"] if before and after != before else []


def operation_in_time(number: int, phase: str, late_s: float, allowed_s: float) -> list[str]:
    """An operation is done or rolled back by its deadline, and what the way back takes after it.

    >>> operation_in_time(3, "join", late_s=4.0, allowed_s=60.0)
    []
    >>> operation_in_time(3, "join", late_s=61.0, allowed_s=60.0)
    ['operations: operation 3 is in phase join, 61 s after its deadline (60 s are allowed)']
    """
    if late_s <= allowed_s:
        return []
    return [
        f"operations: operation {number} is in phase {phase}, {late_s:.0f} s after its deadline "
        f"({allowed_s:.0f} s are allowed)"
    ]


def operation_outcome(number: int, state: str, what: str, wanted: Hashable, found: Hashable) -> list[str]:
    """What an operation leaves is what it says of itself: that which it led to, or that which was before.

    >>> operation_outcome(3, "done", "what is to run", "generation 2", "generation 2")
    []
    >>> operation_outcome(3, "rolled-back", "who publishes", 1, 2)
    ['operations: operation 3 is rolled-back, and who publishes is 2, not 1']
    """
    if wanted == found:
        return []
    return [f"operations: operation {number} is {state}, and {what} is {found}, not {wanted}"]


def capacity(leaving: str, computing: Sequence[str], wanted: int) -> list[str]:
    """Because of an operation there are never fewer replicas than wanted. Takes those beside the one that leaves.

    >>> capacity("r0", ["r1", "r2"], wanted=2)
    []
    >>> capacity("r0", ["r2"], wanted=2)
    ['capacity: r0 has to leave, and of 2 wanted replicas r2 computes']
    """
    if len(computing) >= wanted:
        return []
    return [
        f"capacity: {leaving} has to leave, and of {wanted} wanted replicas {', '.join(computing) or 'none'} computes"
    ]
