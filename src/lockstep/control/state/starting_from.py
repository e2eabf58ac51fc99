"""Starting a job from a savepoint: its ledger begins at the savepoint's epoch, its first replica has the state.

A job that has begun is never taken back: its sinks hold epochs that would be computed again with another outcome. So
the job that starts is a new one, by its name or by its folder, with sinks of its own.

All is put in place before the ledger begins, which is one act. Whoever was killed before it starts anew from here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lockstep.connect.protocols import Place, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks.stage import journal_schema
from lockstep.connect.specs import JournalSource
from lockstep.control.hosts.host_directory import State
from lockstep.control.start.continuing import BUCKETS, PLAN
from lockstep.control.state.savepoint_files import KeptJournal, Savepoint, read_items, verified
from lockstep.errors import ServiceError
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.plan.keyed import BUCKETS_AT_FIRST
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.recovery import VERSION, VERSION_FROM, state_at
from lockstep.store.home import job_folder
from lockstep.store.journal import open_journal
from lockstep.store.protocols import Positions, Store

BEGUN_FROM = "begun-from"
"""Fact: the savepoint that the job was started from."""
FIRST_REPLICA = "r0"


def begin_from(
    folder: Path, graph: Graph, store: Store, place: Place, *, bring: Callable[[State], str] | None = None
) -> None:
    """Put a savepoint in place for a job that has not begun; nothing happens if it began from this very one.

    ``bring``: have a host take the state of the first replica, where the job's replicas live on hosts; which one.
    """
    savepoint = verified(folder)
    head = store.head()
    if head is not None:
        if store.fact(BEGUN_FROM) == savepoint.id:
            return
        raise _has_begun(graph.name, head.epoch, savepoint)
    if bring is not None and savepoint.journals:
        raise _on_hosts(graph.name)
    _check_plan(graph, savepoint)
    _check_sinks(graph, place, savepoint)
    _check_sources(graph, place, savepoint)
    if bring is None:
        _put_checkpoints(folder, savepoint, replica_folder(place.home, graph.name, FIRST_REPLICA))
    else:
        host = bring(State(FIRST_REPLICA, folder, [stage.folder for stage in savepoint.stages], savepoint.id))
        # Whoever places the first replica goes by this.
        store.set_fact(state_at(FIRST_REPLICA), host)
    for journal in savepoint.journals:
        _put_journal(folder, journal, job_folder(place.home, graph.name))
    _note(store, savepoint)
    # The generations of the job that it was taken from are not this one's.
    entries = [replace(entry, generation=1, turn=0) for entry in savepoint.entries]
    store.begin_at(entries, read_items(folder))
    store.add_event("begun-from", f"savepoint {savepoint.name} of {savepoint.job}, epoch {savepoint.epoch}")


def _note(store: Store, savepoint: Savepoint) -> None:
    """What the first replica compares its checkpoint with; all of it before there is a ledger."""
    facts = {
        PLAN: json.dumps(savepoint.plan, sort_keys=True),
        VERSION: savepoint.version,
        **savepoint.facts,
        BEGUN_FROM: savepoint.id,
    }
    # Of a start that was killed before its ledger began.
    facts[VERSION_FROM] = "-1"
    for fact, value in facts.items():
        store.set_fact(fact, value)
    for epoch, newest_us in savepoint.observed.items():
        if newest_us:
            store.add_observed(int(epoch), newest_us)


def _put_checkpoints(folder: Path, savepoint: Savepoint, replica: Path) -> None:
    for stage in savepoint.stages:
        fresh = replica / f"{stage.folder}.new"
        for path in (fresh, replica / stage.folder):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder / stage.folder, fresh)
        fresh.rename(replica / stage.folder)


def _put_journal(folder: Path, kept: KeptJournal, job: Path) -> None:
    """Made anew: what is there is of a start that was killed before its ledger began."""
    shutil.rmtree(job / "journals" / kept.name, ignore_errors=True)
    with pa.memory_map(str(folder / kept.file)) as file:
        reader = pa.ipc.open_file(file)
        journal = open_journal(job, kept.name, journal_schema(reader.schema))
        try:
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            journal.begin_at(kept.first, batches, kept.fences)
        finally:
            journal.close()


def _check_plan(graph: Graph, savepoint: Savepoint) -> None:
    buckets = int(savepoint.facts.get(BUCKETS, BUCKETS_AT_FIRST))
    changed = differences(savepoint.plan, graph.with_buckets(buckets).fingerprint())
    if len(graph.stages) != len(savepoint.stages):
        changed.append(f"it had {len(savepoint.stages)} stages, it has {len(graph.stages)}")
    if changed:
        raise ServiceError(
            "LS0726",
            f'job "{graph.name}" cannot go on from the savepoint "{savepoint.name}"',
            why="; ".join(changed) + ".",
            hint="state belongs to the steps that wrote it: undo the change, or start without --from.",
        )


def _check_sinks(graph: Graph, place: Place, savepoint: Savepoint) -> None:
    """A sink that holds epochs would take the new ones for those, and drop them."""
    for step in graph.sinks:
        if step.spec.kind in ("stage", "console"):
            continue
        side: SinkSide = sink_side(step.spec, step.id, place, step.given)
        try:
            last = side.last_published()
        finally:
            side.close()
        if last is not None:
            raise ServiceError(
                "LS0727",
                f'the sink "{step.id}" holds epochs up to {last} already',
                why=f"{step.spec.describe()} would take the epochs after {savepoint.epoch} for published ones.",
                hint="give the sink of this job another place (or another table); what is there stays as it is.",
            )


def _check_sources(graph: Graph, place: Place, savepoint: Savepoint) -> None:
    """Positions mean records of a certain journal: it has to be here, and to have them still."""
    for step in graph.sources:
        spec, positions = step.spec, savepoint.entries[0].cut.get(step.id)
        if not isinstance(spec, JournalSource) or positions is None:
            continue  # files are compared by content, topics by their id: their sources say it themselves
        journal = open_journal(place.home, spec.name, spec.values, spec.partitions)
        try:
            begins, ends = journal.begins(), journal.ends()
        finally:
            journal.close()
        if lost := _lost(positions, begins, ends):
            raise ServiceError(
                "LS0728",
                f'the source "{step.id}" does not have what the savepoint goes on with',
                why=f"journal {spec.name} here: {lost}.",
                hint="start where that journal is, or copy its folder (.lockstep/journals) along with the savepoint; "
                "pinned savepoints keep what they need there.",
            )


def _lost(positions: Positions, begins: Mapping[int, int], ends: Mapping[int, int]) -> str:
    """In words, where a journal does not reach the positions; empty if it does.

    >>> _lost({"0": 7}, {0: 5}, {0: 9}), _lost({"0": 3}, {0: 5}, {0: 9})
    ('', 'partition 0 goes from 5 to 9, and 3 is next')
    """
    for partition, position in positions.items():
        begin, end = begins.get(int(partition), 0), ends.get(int(partition), 0)
        if not begin <= position <= end:
            return f"partition {partition} goes from {begin} to {end}, and {position} is next"
    return ""


def _has_begun(job: str, epoch: int, savepoint: Savepoint) -> ServiceError:
    return ServiceError(
        "LS0729",
        f'job "{job}" cannot go back to the savepoint "{savepoint.name}"',
        why=f"it is at epoch {epoch}, and its sinks hold epochs after {savepoint.epoch}: computed again from there "
        "they could say something else, and nobody could tell which holds.",
        hint="give Job(...) another name and its sinks other places, and start that with --from; without --from this "
        "job goes on where it is.",
    )


def _on_hosts(job: str) -> ServiceError:
    return ServiceError(
        "LS0730",
        f'job "{job}" cannot be started from this savepoint on hosts',
        why="journals inside the job are in it, and where there are several hosts those are topics.",
        hint="start it on one host, with a store in its folder.",
    )
