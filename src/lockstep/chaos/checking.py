"""The checkers: after a run, everything that was promised is looked at from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.chaos.comparing import Comparison, compare
from lockstep.chaos.recomputing import recompute
from lockstep.chaos.running import Doing, Runner
from lockstep.chaos.subject import Subject
from lockstep.chaos.vocabulary import Part
from lockstep.chaos.watching import Sighting, Span
from lockstep.clock import US_PER_S
from lockstep.config import STORE_FOLDER
from lockstep.connect.protocols import Place
from lockstep.connect.reading import Reader, read
from lockstep.connect.working import sink_side
from lockstep.observe.promises import completeness, equality, once, order, progress
from lockstep.plan.steps import Sink
from lockstep.store.protocols import Store

COMPLAINTS_SHOWN = 10
STANDSTILL_S_MAX = 10.0
"""While a replica is well, nothing may stand still for longer. Killing the other costs tenths of a second; on a busy
machine a JVM that boots beside it costs seconds."""


@dataclass(frozen=True)
class Verdict:
    """What one checker says; no complaint means that all is well."""

    name: str
    looked_at: str
    complaints: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether there is nothing to complain about."""
        return not self.complaints


@dataclass(frozen=True)
class Evidence:
    """What is left when a run is over."""

    subject: Subject
    project: Path
    store: Store
    runner: Runner
    sightings: Sequence[Sighting]
    acknowledged: Mapping[str, int]
    held: Mapping[str, int]
    settled_epoch: int
    """The epoch that was waited for before the job was stopped; one sealed later may be left for the next run."""


def check_promises(evidence: Evidence) -> list[Verdict]:
    """Every promise of the design that can be read off ledger, digests, sinks and what was seen."""
    store, subject = evidence.store, evidence.subject
    entries = store.entries(0, 2**62)
    head = entries[-1].epoch if entries else -1
    published = {sink.id: _published(sink, evidence, head) for sink in subject.sinks}
    seen = [one.epoch for one in evidence.sightings]
    ordered = [f"{name}: {said}" for name, epochs in published.items() for said in order(epochs)]
    cuts = [(entry.epoch, entry.cut) for entry in entries]
    due = [(epoch, cut) for epoch, cut in cuts if epoch <= evidence.settled_epoch]
    whole = completeness(cuts)
    whole += [f"{name}: {said}" for name, epochs in published.items() for said in completeness(due, epochs)]
    rows = [(d.epoch, d.sink, d.version, d.replica, d.digest) for entry in entries for d in store.digests(entry.epoch)]
    differing = equality(rows) + [f"divergence at epoch {one.epoch}: {one.detail}" for one in store.divergences()]
    return [
        _verdict("completeness", f"{len(entries)} epochs of the ledger, each published in every sink", whole),
        _verdict(
            "order", f"epochs of {_many(len(published), 'sink')}, and as a reader saw them", [*ordered, *order(seen)]
        ),
        _verdict("once", f"{sum(map(len, published.values()))} publications", _once(published)),
        _verdict("equality", f"{len(rows)} digests of {len(entries)} epochs", differing),
        _progress(evidence),
    ]


def check_input(evidence: Evidence) -> Verdict:
    """Everything that was acknowledged is in the journals and in an epoch, and nothing else is."""
    head = evidence.store.head()
    cut = head.cut if head is not None else {}
    complaints = []
    for source, count in evidence.acknowledged.items():
        read_count = sum(cut.get(source, {}).values())
        if evidence.held[source] != count:
            complaints.append(f"{source}: {count} records were acknowledged, the journal holds {evidence.held[source]}")
        if read_count != count:
            complaints.append(f"{source}: {count} records were acknowledged, epochs hold {read_count}")
    accepted = [one for one in evidence.runner.doings if one.deed is not None and one.deed.data.get("accepted", 0)]
    complaints += [f"{one.planned.number}. {one.action.name}: {one.deed.text}" for one in accepted if one.deed]
    total = sum(evidence.acknowledged.values())
    return _verdict(
        "input", f"{total:,} acknowledged records of {_many(len(evidence.acknowledged), 'journal')}", complaints
    )


def check_output(
    evidence: Evidence, records: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path, note: Callable[[str], None]
) -> tuple[Verdict, list[Comparison]]:
    """Every row of every sink against somebody else's answer."""
    subject = evidence.subject
    if subject.reference is not None:
        note(f"comparing the output with {subject.told_by}")
        answer = subject.reference(records)
        pairs = [(sink.id, answer.get(sink.id, []), _rows(sink, evidence.project)) for sink in subject.sinks]
    else:
        last = recompute(subject, evidence.project, folder, note)
        pairs = [(s.id, _rows(s, folder, last), _rows(s, evidence.project, last)) for s in subject.sinks]
    found = [compare(*pair) for pair in pairs]
    complaints = [_difference(one) for one in found if not one.equal]
    rows = sum(one.expected for one in found)
    return _verdict(
        "output", f"{rows:,} rows of {_many(len(found), 'sink')}, compared with {subject.told_by}", complaints
    ), found


def _rows(sink: Sink, project: Path, last: int | None = None) -> list[dict[str, Any]]:
    """All rows of a sink; up to epoch ``last`` each with its epoch, where the sink keeps one."""
    data = sink.spec.to_json()
    if sink.spec.kind == "sqlite":
        keyed = bool(data["key"])
        epochs = None if last is None or keyed else range(last + 1)
        return read(project / data["database"], epochs, table=data["table"]).to_pylist()  # type: ignore[no-any-return]
    path = project / data["path"]
    if last is None:
        return read(path).to_pylist()  # type: ignore[no-any-return]
    reader = Reader(path)
    return [{**row, "epoch": epoch} for epoch in range(last + 1) for row in reader.table(epoch).to_pylist()]


def _published(sink: Sink, evidence: Evidence, head: int) -> list[int]:
    place = Place(evidence.project, evidence.project / STORE_FOLDER, evidence.subject.graph.name)
    side = sink_side(sink.spec, sink.id, place, sink.given)
    try:
        found = [side.publication(epoch) for epoch in range(head + 1)]
        return [one.epoch for one in found if one is not None]
    finally:
        side.close()


def _once(published: Mapping[str, Iterable[int]]) -> list[str]:
    return [f"{name}: {said}" for name, epochs in published.items() for said in once(epochs)]


def _difference(one: Comparison) -> str:
    return (
        f"{one.sink}: of {one.expected} rows {one.missing} are missing, {one.repeated} came too often, {one.wrong} "
        f"are wrong: {'; '.join(one.examples)}"
    )


def _progress(evidence: Evidence) -> Verdict:
    times = [one.seen_us for one in evidence.sightings]
    spans = undisturbed(evidence.runner.attendance.spans, evidence.runner.doings)
    said = progress(times, [(one.first_us, one.last_us) for one in spans], round(STANDSTILL_S_MAX * US_PER_S))
    what = f"whether something was published every {STANDSTILL_S_MAX:.0f} s while a replica was well"
    return _verdict("progress", what, said)


def undisturbed(spans: Sequence[Span], doings: Sequence[Doing]) -> list[Span]:
    """The spans without the times in which something that reaches every replica was under way."""
    broad = [
        (one.begun_us, one.over_us) for one in doings if one.over_us and one.action.takes - {Part.REPLICA, Part.INPUT}
    ]
    for first_us, over_us in broad:
        spans = [part for span in spans for part in _without(span, first_us, over_us)]
    return list(spans)


def _without(span: Span, first_us: int, end_us: int) -> list[Span]:
    parts = [
        Span(span.replica, span.first_us, min(span.last_us, first_us)),
        Span(span.replica, max(span.first_us, end_us), span.last_us),
    ]
    return [part for part in parts if part.first_us < part.last_us]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _verdict(name: str, looked_at: str, complaints: Sequence[str]) -> Verdict:
    shown = list(complaints[:COMPLAINTS_SHOWN])
    if len(complaints) > len(shown):
        shown.append(f"and {len(complaints) - len(shown)} more")
    return Verdict(name, looked_at, tuple(shown))
