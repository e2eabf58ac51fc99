"""The checkers: after a run, everything that was promised is looked at from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.chaos.comparing import Comparison, compare
from lockstep.chaos.operations import Asked, complaints_about
from lockstep.chaos.recomputing import recompute
from lockstep.chaos.runner import Doing, Runner
from lockstep.chaos.sink_contents import gaps, repeated, replaced, sink_contents
from lockstep.chaos.subject import Subject
from lockstep.chaos.vocabulary import Part
from lockstep.chaos.watching import SeenEpoch, Span
from lockstep.clock import US_PER_S
from lockstep.connect.reading import Reader, read
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Operation
from lockstep.errors import LockstepError, RunError
from lockstep.observe.promises import completeness, equality, order, progress
from lockstep.plan.steps import Sink
from lockstep.runtime.desired_run import last_run
from lockstep.store.protocols import Store

COMPLAINTS_SHOWN = 10
STANDSTILL_S_MAX = 10.0
"""While a replica is well, nothing may stand still for longer. Killing the other costs tenths of a second; on a busy
machine a JVM that boots beside it costs seconds."""
RECOVERED_S_MAX = 90.0
"""What reaches every replica may stop the output for as long as it lasts, and for this long afterwards: time for a JVM
to boot on a busy machine. All replicas together have longer; one of them must publish by then."""


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
    seen_epochs: Sequence[SeenEpoch]
    acknowledged: Mapping[str, int]
    held: Mapping[str, int]
    settled_epoch: int
    """The epoch that was waited for before the job was stopped; one sealed later may be left for the next run."""


def check_promises(evidence: Evidence) -> list[Verdict]:
    """Every promise of the design that can be read off ledger, digests, sinks and what was seen."""
    store, subject = evidence.store, evidence.subject
    entries = store.entries(0, 2**62)
    held = [sink_contents(sink, evidence.project) for sink in subject.sinks]
    watched = held[0]
    fences, counted = sum(len(one.fences) for one in held), sum(sum(one.rows.values()) for one in held)
    seen = [one.epoch for one in evidence.seen_epochs]
    ordered = [said for one in held for said in gaps(one)]
    twice = [said for one in held for said in repeated(one)] + replaced(watched, evidence.seen_epochs)
    cuts = [(entry.epoch, entry.cut) for entry in entries]
    due = [(epoch, cut) for epoch, cut in cuts if epoch <= evidence.settled_epoch]
    whole = completeness(cuts)
    whole += [f"{one.sink}: {said}" for one in held for said in completeness(due, one.epochs)]
    rows = [(d.epoch, d.sink, d.version, d.replica, d.digest) for entry in entries for d in store.digests(entry.epoch)]
    differing = equality(rows) + [f"divergence at epoch {one.epoch}: {one.detail}" for one in store.divergences()]
    return [
        _verdict("completeness", f"{len(entries)} epochs of the ledger, each published in every sink", whole),
        _verdict(
            "order",
            f"gaps in {_many(len(held), 'sink')}, and the order in which a reader saw epochs appear in {watched.sink}",
            [*ordered, *order(seen)],
        ),
        _verdict(
            "once",
            f"{fences} fences and {counted:,} rows as they lie in {_many(len(held), 'sink')}, and whether what a "
            f"reader saw in {watched.sink} is still the same",
            twice,
        ),
        _verdict("equality", f"{len(rows)} digests of {len(entries)} epochs", differing),
        _progress(evidence),
    ]


def check_operations(doings: Sequence[Doing], store: Store) -> tuple[list[Verdict], list[Operation]]:
    """Each that was asked for: done or rolled back by its deadline, each step once, none lost. None: no verdict."""
    asked = [found for one in doings if one.deed is not None and (found := Asked.from_json(one.deed.data))]
    kept = OperationBook(store).all()
    if not asked:
        return [], kept
    said = complaints_about(asked, kept, last_run(store))
    done = sum(one.state == "done" for one in kept if any(one.number == each.number for each in asked))
    looked_at = f"{_many(len(asked), 'operation')}, {done} done: each to its end by its deadline, each step once"
    return [_verdict("operations", looked_at, said)], kept


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
    """Every row of every sink against somebody else's answer; what could not be compared is a complaint."""
    subject = evidence.subject
    complaints: list[str] = []
    found: list[Comparison] = []
    try:
        if subject.reference is not None:
            note(f"comparing the output with {subject.told_by}")
            found = _with_reference(subject, evidence.project, records, complaints)
        else:
            found = _with_recomputation(evidence, folder, note, complaints)
    except (LockstepError, OSError) as error:
        # Also then a report is wanted, with everything else that was found out.
        complaints.append(f"the output could not be compared: {error}")
    complaints += [_difference(one) for one in found if not one.equal]
    rows = sum(one.expected for one in found)
    if found and not rows:
        complaints.append("no row was expected in any sink: that nothing differs says nothing")
    looked_at = f"{rows:,} rows of {_many(len(found), 'sink')}, compared with {subject.told_by}"
    compared = {one.sink for one in found}
    left_out = [sink.id for sink in subject.graph.sinks if sink.id not in compared]
    return _verdict(
        "output", looked_at + (f"; not compared: {', '.join(left_out)}" if left_out else ""), complaints
    ), found


def _with_reference(
    subject: Subject, project: Path, records: Mapping[str, Sequence[Mapping[str, Any]]], complaints: list[str]
) -> list[Comparison]:
    assert subject.reference is not None
    try:
        answer = subject.reference(records)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError("LS0654", "the function reference() failed", why=why) from error
    wanted = sorted(sink.id for sink in subject.sinks)
    if sorted(answer) != wanted:
        complaints.append(f"the reference answers for {sorted(answer)}, the sinks that can be compared are {wanted}")
    return [compare(sink.id, answer[sink.id], _rows(sink, project)) for sink in subject.sinks if sink.id in answer]


def _with_recomputation(
    evidence: Evidence, folder: Path, note: Callable[[str], None], complaints: list[str]
) -> list[Comparison]:
    """Up to the last epoch that all sinks have: one that was sealed late may be left for the next run."""
    subject = evidence.subject
    lasts = {sink.id: sink_contents(sink, evidence.project).last for sink in subject.sinks}
    last = min(lasts.values())
    if last < evidence.settled_epoch:
        complaints.append(f"not every sink has all epochs to {evidence.settled_epoch}, compared is to {last}: {lasts}")
    if last < 0:
        return []
    recompute(subject, evidence.project, folder, last, note)
    # A table with a key cannot be read as it was some epochs ago.
    sinks = [sink for sink in subject.sinks if lasts[sink.id] == last or not sink.spec.to_json().get("key")]
    return [compare(sink.id, _rows(sink, folder, last), _rows(sink, evidence.project, last)) for sink in sinks]


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


def _difference(one: Comparison) -> str:
    return (
        f"{one.sink}: of {one.expected} rows {one.missing} are missing, {one.repeated} came too often, {one.wrong} "
        f"are wrong: {'; '.join(one.examples)}"
    )


def _progress(evidence: Evidence) -> Verdict:
    times = [one.seen_us for one in evidence.seen_epochs]
    spans = undisturbed(evidence.runner.able.spans, evidence.runner.doings)
    said = progress(times, [(one.first_us, one.last_us) for one in spans], round(STANDSTILL_S_MAX * US_PER_S))
    what = (
        f"whether something was published every {STANDSTILL_S_MAX:.0f} s while a replica's processes went on, and "
        f"{RECOVERED_S_MAX:.0f} s after what reached all of them"
    )
    return _verdict("progress", what, said)


def undisturbed(spans: Sequence[Span], doings: Sequence[Doing]) -> list[Span]:
    """The spans without the times in which something that reaches every replica was under way, or just over."""
    excused_us = round(RECOVERED_S_MAX * US_PER_S)
    broad = [
        (one.begun_us, min(one.over_us, (one.undone_us or one.begun_us) + excused_us))
        for one in doings
        if one.over_us and one.action.takes - {Part.REPLICA, Part.INPUT, Part.SHAPE}
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
