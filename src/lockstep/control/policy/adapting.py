"""A job that adapts by itself: its policy looks at it beside the supervisor, and asks for operations as people do."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from lockstep.config import PARTITIONS
from lockstep.control.operations.verbs import JobVerbs, Manner
from lockstep.control.policy.decisions import Operation, Replace, Rescale
from lockstep.control.policy.observations import Shape
from lockstep.control.policy.runner import PolicyRunner
from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import DesiredRun
from lockstep.store.protocols import Store

ASKED_BY = "policy"


def policy_runner(store: Store, order: DesiredRun, hosts: Callable[[], Sequence[str]]) -> PolicyRunner:
    """Whoever has the policy of a job look at it; ``hosts`` are those that the job may use now."""
    settings, verbs = order.parsed_settings(), JobVerbs(store, order.job)
    return PolicyRunner(
        store,
        settings.policy,
        settings.run,
        lambda: shape_of(verbs, hosts()),
        lambda wanted: ask(verbs, wanted, hosts()),
    )


def shape_of(verbs: JobVerbs, hosts: Sequence[str]) -> Shape:
    """What the job looks like now: a change under way shows when it is done, which is what the policy waits for."""
    settings = verbs.current().parsed_settings()
    # What this host has stands for the others: where they differ, a larger one idles a little.
    cores = (os.cpu_count() or 1) * max(1, len(hosts))
    partitions = int(settings.spark.conf.get(PARTITIONS, "1"))
    return Shape(partitions, cores, settings.run.replicas, settings.run.spares, hosts)


def ask(verbs: JobVerbs, wanted: Operation, hosts: Sequence[str]) -> None:
    """Have carried out what the policy wants."""
    manner = Manner(ASKED_BY)
    match wanted:
        case Rescale(partitions=partitions, replicas=replicas, spares=spares):
            verbs.rescale(partitions=partitions, replicas=replicas, spares=spares, manner=manner)
        case Replace(replica=replica, avoid_host=host):
            other = next((one for one in hosts if one and one != host), None)
            if other is None:
                raise ServiceError("LS0742", f"there is no other host for {replica}", why="the job has one host.")
            verbs.move(replica, other, manner)
        case _:
            raise AssertionError("advice is not asked for")
