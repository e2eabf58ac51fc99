"""What is in stores, turned into the service's models."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from lockstep.config import PARTITIONS
from lockstep.control.operations import model as operations
from lockstep.control.start.drawing import drawing
from lockstep.control.status.health import ReplicaHealth
from lockstep.control.status.overview import Overview, spares
from lockstep.credentials import is_secret, without_secrets
from lockstep.runtime.desired_run import LEASE, DesiredRun, last_run
from lockstep.runtime.steering import steering
from lockstep.serve import models
from lockstep.store.protocols import Digest, Entry, Published, Store

if TYPE_CHECKING:
    from lockstep.control.state.savepoints import Kept
    from lockstep.control.state.state_query import QueryResult

LOG_BYTES_MAX = 1_000_000
"""So much of the end of a log is read for an answer."""
_SHUFFLE_PARTITIONS = 1
"""What a job's settings have where they say nothing."""


def replica(seen: ReplicaHealth) -> models.Replica:
    """One replica."""
    return models.Replica(
        replica=seen.replica,
        state=seen.state,
        alive=seen.alive,
        epoch=seen.epoch,
        lag_epochs=seen.lag_epochs,
        within_lead=seen.within_lead,
        epoch_ms=round(seen.epoch_s * 1000, 1),
        restarts=seen.restarts,
        pid=seen.pid,
        host=seen.host,
        note=seen.note,
        starting_s=None if seen.starting_s is None else round(seen.starting_s, 1),
        working_on=seen.working_on if seen.working_on >= 0 else None,
        under_way_s=round(seen.under_way_s, 1),
        executors=seen.executors,
        executors_lost=seen.executors_lost,
        environment=seen.environment,
    )


def summary(job: str, store: Store, seen: Overview) -> models.JobSummary:
    """A job in a list."""
    return models.JobSummary(**_summary(job, store, seen))


def _summary(job: str, store: Store, seen: Overview) -> dict[str, Any]:
    order = last_run(store)
    return {
        "job": job,
        "state": seen.health.state,
        "reason": seen.health.reason,
        "wanted": order is not None and order.wanted,
        "active": not steering(store).paused,
        "coordinator": store.holder(LEASE),
        "replicas_wanted": order.parsed_settings().run.replicas if order is not None else 0,
        "head_epoch": seen.head_epoch,
        "published_epoch": seen.published_epoch,
        "rows_per_s": round(seen.rows_per_s, 3),
        "generation": order.generation if order is not None else 1,
    }


def description(
    job: str, store: Store, seen: Overview, under_way: operations.Operation | None
) -> models.JobDescription:
    """All about a job."""
    return models.JobDescription(
        **_summary(job, store, seen),
        replicas=[replica(one) for one in seen.health.replicas],
        latency_ms=seen.latency_ms,
        latency_all_ms=store.latency_ms(),
        spares=spares(store),
        divergences=len(store.divergences()),
        dead_letters=seen.dead_letters,
        held_back_us={source: dict(others) for source, others in seen.held.items()},
        operation=operation(under_way) if under_way is not None else None,
    )


def operation(one: operations.Operation) -> models.Operation:
    """An operation, without the specs that only a coordinator needs."""
    return models.Operation(
        number=one.number,
        kind=one.kind,
        arguments=dict(one.arguments),
        asked_by=one.asked_by,
        asked_us=one.asked_us,
        deadline_us=one.deadline_us,
        at_deadline=one.at_deadline,
        state=one.state,
        open=one.is_open,
        phase=one.phase,
        wish=one.wish,
        steps=[models.OperationStep(name=step.name, at_us=step.at_us, text=step.text) for step in one.steps],
        error=one.error,
        ended_us=one.ended_us,
    )


def spec(order: DesiredRun) -> models.Spec:
    """What is to run, as it may be shown."""
    run, spark = order.settings["run"], order.settings["spark"]
    return models.Spec(
        generation=order.generation,
        results_of=order.results_of,
        wanted=order.wanted,
        code_hash=order.code_hash,
        job_file=order.job_file,
        replicas=run["replicas"],
        partitions=_partitions(order),
        stage_partitions=run.get("stage_partitions", {}),
        master=spark["master"],
        settings=_shown(order.settings),
    )


def _partitions(order: DesiredRun) -> int:
    return int(order.settings["spark"].get("conf", {}).get(PARTITIONS, _SHUFFLE_PARTITIONS))


def _shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without secrets, those inside addresses too."""

    def clean(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {inner: clean(str(inner), each) for inner, each in value.items()}
        return "*********(redacted)" if isinstance(value, str) and value and is_secret(key) else value

    return dict(json.loads(without_secrets(json.dumps(clean("", settings)))))


def epoch(entry: Entry, published: Published | None, digests: list[Digest]) -> models.Epoch:
    """One epoch."""
    oldest_us = published.ingested_oldest_us if published else None
    return models.Epoch(
        epoch=entry.epoch,
        epoch_time_us=entry.epoch_time_us,
        records=entry.records,
        cut={source: dict(positions) for source, positions in entry.cut.items()},
        marks_us=dict(entry.marks),
        sealed_by=entry.sealed_by,
        generation=entry.generation,
        published_by=published.replica if published else None,
        published_us=published.published_us if published else None,
        latency_ms=(published.published_us - oldest_us) / 1000 if published and oldest_us is not None else None,
        digests_equal=_equal(digests),
    )


def _equal(digests: list[Digest]) -> bool | None:
    """Whether all digests of each sink and version are equal; None while fewer than two replicas have reported."""
    if len({digest.replica for digest in digests}) < 2:
        return None
    groups: dict[tuple[str, str], set[str]] = {}
    for digest in digests:
        groups.setdefault((digest.sink, digest.version), set()).add(digest.digest)
    return all(len(group) == 1 for group in groups.values())


def epochs(store: Store, before: int | None, limit: int) -> models.Epochs:
    """The newest epochs, or those before one of them."""
    head = store.head()
    if head is None:
        return models.Epochs(epochs=[], before=None)
    last = head.epoch if before is None else min(head.epoch, before - 1)
    floor = store.floor()
    first = max(floor, last - limit + 1)
    published = {one.epoch: one for one in store.published(first, last)} if first <= last else {}
    entries = store.entries(first, last) if first <= last else []
    found = [epoch(entry, published.get(entry.epoch), store.digests(entry.epoch)) for entry in reversed(entries)]
    return models.Epochs(epochs=found, before=first if first > floor and found else None)


def events(store: Store, after: int, limit: int) -> models.Events:
    """Events after one of them."""
    found = [
        models.Event(id=number, at_us=at_us, kind=kind, replica=name, text=text)
        for number, at_us, kind, name, text in store.events(after, limit)
    ]
    return models.Events(events=found, after=found[-1].id if found else after)


def stages(store: Store, order: DesiredRun | None) -> list[models.Stage]:
    """What runs as a Spark query each; empty if the job never ran."""
    graph = drawing(store).get("graph", {})
    by_stage = order.settings["run"].get("stage_partitions", {}) if order is not None else {}
    return [
        models.Stage(**stage, partitions=by_stage.get(str(stage["stage"]), _partitions(order) if order else 1))
        for stage in graph.get("stages", [])
    ]


def plan(store: Store, order: DesiredRun | None) -> models.Plan:
    """The job's graph, and where it is computed."""
    drawn = drawing(store)
    said = store.progress()
    return models.Plan(
        logical=drawn.get("graph", {}),
        text=drawn.get("text", ""),
        physical=models.PhysicalPlan(
            master=order.settings["spark"]["master"] if order is not None else "",
            stages=stages(store, order),
            replicas=[
                models.PlacedReplica(
                    replica=one.replica, state=one.state, host=one.host, pid=one.pid, generation=one.generation
                )
                for one in said
            ],
        ),
    )


def savepoint(kept: Kept) -> models.Savepoint:
    """A savepoint in a list."""
    one = kept.savepoint
    return models.Savepoint(
        name=one.name,
        id=one.id,
        epoch=one.epoch,
        taken_us=one.taken_us,
        bytes=one.size,
        pinned=kept.pinned,
        folder=str(kept.folder),
    )


def state_rows(found: QueryResult) -> models.StateRows:
    """Rows of state, with values that JSON has."""
    return models.StateRows(
        job=found.job,
        step=found.step,
        epoch=found.epoch,
        columns=list(found.columns),
        rows=to_jsonable_python(found.rows, bytes_mode="hex", serialize_unknown=True),
        more=found.more,
    )


def log(name: str, path: Path, lines: int) -> models.Log:
    """The last lines of a log; none if there is no log yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_BYTES_MAX))
            text = file.read(LOG_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return models.Log(name=name, lines=[], truncated=False)
    every = without_secrets(text).splitlines()
    kept = list(deque(every, lines))
    return models.Log(name=name, lines=kept, truncated=size > LOG_BYTES_MAX or len(every) > lines)
