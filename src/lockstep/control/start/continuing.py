"""Whether a job may go on from what its store knows: the same plan, not at its end, and since when new code counts."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from lockstep.clock import wall_us
from lockstep.config import RunSettings, Settings
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.operations.rolling import Change
from lockstep.errors import RunError
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.plan.keyed import BUCKETS_AT_FIRST
from lockstep.runtime.desired_run import DesiredRun, last_run
from lockstep.runtime.spark.environment import refused_settings
from lockstep.runtime.spec import replica_names
from lockstep.runtime.state.recovery import VERSION, VERSION_FROM
from lockstep.runtime.steering import publish_from
from lockstep.store.protocols import Store

PLAN = "plan"
"""Fact: the fingerprint of the plan that the job's state is of."""
BUCKETS = "buckets"
"""Fact: into how many parts the keys of its keyed steps are divided."""


def refuse_pinned(settings: Settings) -> None:
    """Refuse a Spark setting that would change results."""
    for replica in replica_names(settings.run.replicas):
        if pinned := refused_settings(settings.spark_of(replica)):
            raise RunError(
                "LS0611",
                f"these Spark settings are pinned and cannot be changed: {', '.join(pinned)}",
                why="they change results, and replicas must not differ.",
                hint="take them out of lockstep.toml or --spark-conf.",
            )


def held_buckets(store: Store) -> int | None:
    """Into how many parts the job's keys are divided, None if it has never been started."""
    held = store.fact(BUCKETS)
    if held is not None:
        return int(held)
    # A job of a release in which the number could not be chosen.
    return BUCKETS_AT_FIRST if store.fact(PLAN) is not None else None


def settle_buckets(store: Store, settings: RunSettings) -> RunSettings:
    """The settings with the number of buckets that the job has: it is chosen once, by the first start."""
    held = int(store.put_fact_if_absent(BUCKETS, str(held_buckets(store) or settings.buckets)))
    if held != settings.buckets and "buckets" in settings.model_fields_set:
        text = f"buckets stays {held}, not {settings.buckets}: the job's state is laid out by it since its first start"
        store.add_event("buckets-kept", text)
    return settings.model_copy(update={"buckets": held})


def follow_plan(store: Store, graph: Graph) -> None:
    """A checkpoint holds state by position, not by name: a changed stateful plan would misread it silently."""
    plan = json.dumps(graph.fingerprint(), sort_keys=True)
    held = store.put_fact_if_absent(PLAN, plan)
    if held == plan:
        return
    changed = differences(json.loads(held), graph.fingerprint())
    if not changed:
        store.set_fact(PLAN, plan)
        return
    raise RunError(
        "LS0609",
        f'job "{graph.name}" was changed in a way its checkpoint cannot follow',
        why="; ".join(changed) + ".",
        hint="undo the change, or run it as a new job: give Job(...) another name and its sinks other places.",
    )


def settle_generation(store: Store, order: DesiredRun) -> DesiredRun:
    """The order with its generation: that of the last run if it is the same, else a further one.

    An operation that was under way goes on if the job is what it was when that began; otherwise this start counts.
    """
    last, book = last_run(store), OperationBook(store)
    if last is None:
        return order
    same = replace(order, generation=last.generation, results_of=last.results_of, environment=last.environment)
    if same.template().likeness == last.template().likeness:
        order = same
    else:
        # All replicas change at once, after the last epoch: there is nobody to publish other results beside.
        order = replace(same, generation=last.generation + 1)
    under_way = book.open()
    if under_way is not None and order.generation != last.generation:
        _refuse_half_way(under_way)
    if under_way is not None and (order.generation != last.generation or order.settings != last.settings):
        why = "the job was started anew with other code or settings"
        book.update(under_way.number, lambda one: one.ended("rolled-back", wall_us(), why))
        under_way = None
    if under_way is None:
        publish_from(store, order.results_of)
    return order


def _refuse_half_way(operation: Operation) -> None:
    """New code has taken over in some replicas: only the operation itself knows the way to either end."""
    change = Change(operation)
    if change.replaced and change.before.code_hash != change.after.code_hash:
        raise RunError(
            "LS0623",
            f"operation {operation.number} ({operation.kind}) is half-way",
            why="some replicas have the state of the new code, and others that of the old one.",
            hint="start the job with the code and the settings that it had when the operation began: it goes on with "
            "the operation. Then `lockstep commit` or `lockstep rollback`.",
        )


def check_end(store: Store, graph: Graph, settings: Settings) -> None:
    """Bounded and unbounded do not mix: a run until done needs an end, and after the end nothing can come."""
    endless = [step for step in graph.sources if step.spec.kind == "rate" and step.spec.to_json()["limit"] is None]
    if settings.run.until_done and endless:
        raise RunError(
            "LS0615",
            f'the source "{endless[0].id}" never ends',
            why=f"{endless[0].spec.describe()} has no limit, so a run until done would never be done.",
            hint=f"ls.rate({endless[0].spec.to_json()['per_second']:g}, limit=10_000), or run without --until-done.",
        )
    head = store.head()
    if head is not None and head.ending and not settings.run.until_done:
        raise RunError(
            "LS0614",
            f'job "{graph.name}" has been run to its end here',
            why="its event time is at the end: every further record would be late.",
            hint="give Job(...) another name and its sinks other places, or remove .lockstep and the output.",
        )


def note_version(store: Store, version: str, standings: Sequence[tuple[int, ...]]) -> None:
    """New code takes over where the foremost replica stands with the old code, stage by stage, everywhere."""
    held = store.put_fact_if_absent(VERSION, version)
    if held == version:
        return
    foremost = max(standings, key=lambda epochs: (min(epochs), sum(epochs)), default=(-1,))
    store.set_fact(VERSION_FROM, ",".join(map(str, foremost)))
    store.set_fact(VERSION, version)
    store.add_event("new-code", f"takes over after epoch {min(foremost)}")


def forget_removed(store: Store, names: Collection[str]) -> None:
    """Replicas that the job has no more hold nothing back."""
    for said in store.progress():
        if said.replica not in names:
            store.remove(said.replica)
