"""Epochs: the newest ones in a table, and everything that is known of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lockstep.serve.looks.lateness import latency_of
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import (
    Column,
    badge,
    clock_time,
    figures,
    link,
    milliseconds,
    path,
    section,
    shortened,
    table,
)
from lockstep.store.protocols import Digest, Divergence, Entry, Published, subject_text

EPOCHS_SHOWN = 100
PARTITIONS_SHOWN = 100


@dataclass(frozen=True)
class EpochFacts:
    """What the store has of one epoch."""

    epoch: int
    entry: Entry | None
    before: Entry | None
    published: Published | None
    digests: Sequence[Digest]
    divergences: Sequence[Divergence]


def epochs_page(look: Look, entries: Sequence[Entry]) -> Page:
    """The newest epochs, newest first."""
    columns = (
        Column("Epoch", number=True),
        Column("Time"),
        Column("Records", number=True),
        Column("Sealed by"),
        Column("Published by"),
        Column("Latency", number=True),
        Column("Computing", number=True),
    )
    published = {one.epoch: one for one in look.published}
    rows = [_row(look.job, one, published.get(one.epoch)) for one in reversed(entries)]
    body = table("The newest epochs", columns, rows, "No epoch was sealed yet.")
    return Page(
        f"Epochs of {look.job}",
        [headline(look), section("epochs", f"The newest {len(rows)} epochs", body)],
        look.job,
        "epochs",
        path("jobs", look.job, "epochs"),
    )


def _row(job: str, entry: Entry, published: Published | None) -> Sequence[Child]:
    return (
        link(f"{entry.epoch:,}", "jobs", job, "epochs", entry.epoch),
        clock_time(entry.epoch_time_us),
        f"{entry.records:,}",
        entry.sealed_by,
        published.replica if published else "not yet",
        milliseconds(latency_of(published)) if published else "–",
        milliseconds(published.epoch_s * 1000) if published else "–",
    )


def epoch_page(look: Look, facts: EpochFacts) -> Page:
    """One epoch."""
    around = el(
        "p",
        link("← earlier", "jobs", look.job, "epochs", facts.epoch - 1) if facts.epoch > 0 else None,
        " ",
        link("later →", "jobs", look.job, "epochs", facts.epoch + 1)
        if facts.epoch < look.overview.head_epoch
        else None,
        class_="around",
    )
    sections = [headline(look), section("epoch", f"Epoch {facts.epoch:,}", _summary(facts), more=around)]
    if facts.entry is not None:
        sections += [_cut(facts.entry, facts.before), _marks(facts.entry)]
    sections += [_digests(facts), _differences(facts)]
    return Page(
        f"Epoch {facts.epoch} of {look.job}",
        sections,
        look.job,
        "epochs",
        path("jobs", look.job, "epochs", facts.epoch),
    )


def _summary(facts: EpochFacts) -> Html:
    entry, published = facts.entry, facts.published
    pairs: list[tuple[str, Child, Child]] = []
    if entry is not None:
        at = datetime.fromtimestamp(entry.epoch_time_us / 1_000_000, UTC)
        pairs += [
            ("Epoch time", f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}", f"{at:%Y-%m-%d}, UTC"),
            ("Records", f"{entry.records:,}", None),
            ("Sealed by", entry.sealed_by or "–", f"generation {entry.generation}, turn {entry.turn}"),
        ]
    if published is not None:
        pairs += [
            ("Published by", published.replica, clock_time(published.published_us)),
            ("Latency", milliseconds(latency_of(published)), "of its oldest record"),
            ("Computing", milliseconds(published.epoch_s * 1000), None),
        ]
    if not pairs:
        return el("p", "Nothing is kept of it: it is not sealed yet, or too old.", class_="quiet")
    waits = None if published is not None else el("p", "It is not published yet.", class_="quiet")
    return el("div", figures(pairs), waits)


def _cut(entry: Entry, before: Entry | None) -> Html:
    columns = (
        Column("Source"),
        Column("Partition"),
        Column("From", number=True),
        Column("Up to", number=True),
        Column("Records", number=True),
    )
    rows: list[Sequence[Child]] = []
    for source, positions in sorted(entry.cut.items()):
        begins = before.cut.get(source, {}) if before is not None else {}
        for partition, end in sorted(positions.items()):
            begin = begins.get(partition, 0 if before is None else end)
            rows.append((source, partition, f"{begin:,}", f"{end:,}", f"{end - begin:,}"))
    left = len(rows) - PARTITIONS_SHOWN
    note = el("p", f"{left} more partitions are not shown.", class_="quiet") if left > 0 else None
    return section("cut", "Cut", table("Where it begins and ends", columns, rows[:PARTITIONS_SHOWN]), note)


def _marks(entry: Entry) -> Html:
    columns = (Column("Step"), Column("Highest event time before it"))
    rows: list[Sequence[Child]] = [
        (step, "none yet" if mark is None else el("span", clock_time(mark), f" {_date(mark)}"))
        for step, mark in sorted(entry.marks.items())
    ]
    return section("marks", "Marks", table("Marks", columns, rows, "The job has no event time."))


def _date(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / 1_000_000, UTC):%Y-%m-%d}"


def _digests(facts: EpochFacts) -> Html:
    columns = (Column("Of"), Column("Replica"), Column("Rows", number=True), Column("Digest"), Column("Compared"))
    publisher = facts.published.replica if facts.published else ""
    held = {(one.sink, one.version): one.digest for one in facts.digests if one.replica == publisher}
    rows: list[Sequence[Child]] = [
        (
            subject_text(one.sink),
            f"{one.replica}.{one.incarnation}",
            f"{one.rows:,}",
            el("code", one.digest[:16], title=one.digest),
            _verdict(one, publisher, held.get((one.sink, one.version))),
        )
        for one in facts.digests
    ]
    return section("digests", "Digests", table("Digests", columns, rows, "No digest of it is kept."))


def _verdict(one: Digest, publisher: str, published: str | None) -> Html:
    if one.replica == publisher:
        return el("span", "published", class_="badge good")
    if published is None:
        return el("span", "not compared", class_="badge calm")
    return (
        el("span", "equal", class_="badge good")
        if published == one.digest
        else el("span", "different", class_="badge bad")
    )


def _differences(facts: EpochFacts) -> Html:
    made = [
        el(
            "article",
            el(
                "p",
                badge("diverged"),
                f" {one.replica}.{one.incarnation} against {one.published_by}, {subject_text(one.sink)}: ",
                el("b", one.verdict or "not judged yet"),
            ),
            el("pre", shortened(one.detail)),
        )
        for one in facts.divergences
    ]
    return section("differences", "Rows that differ", made or el("p", "None.", class_="quiet"))
