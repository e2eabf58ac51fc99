"""How a job is, as plain data: for `run --json`, `status --json`, and whoever runs a job from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.observe.texts import iso_text

if TYPE_CHECKING:
    from lockstep.control.status.health import ReplicaHealth
    from lockstep.control.status.overview import Overview
    from lockstep.store.protocols import Store


def status_report(name: str, store: Store, overview: Overview) -> dict[str, Any]:
    """A job's state for a program, with what only the store knows: `lockstep status --json`, ``running.status()``."""
    # Imported late: commands that look at no job do not wait for psutil and pydantic.
    from lockstep.control.status.overview import spares

    divergences = store.divergences()
    last = divergences[-1] if divergences else None
    return {
        **overview_json(name, overview),
        "latency_ms": store.latency_ms(),
        "spares": spares(store),
        "divergences": len(divergences),
        "last_divergence": None
        if last is None
        else {
            "epoch": last.epoch,
            "sink": last.sink,
            "replica": last.replica,
            "against": last.published_by,
            "at": iso_text(last.at_us),
            "verdict": last.verdict or "open",
            "detail": last.detail,
        },
    }


def overview_json(job: str, overview: Overview) -> dict[str, object]:
    """A job's state for a program: what `run --json` writes every second and `status --json` begins with."""
    health = overview.health
    return {
        "job": job,
        "state": health.state,
        "healthy": health.state == "healthy",
        "degraded": health.state == "degraded",
        "reason": health.reason,
        "head": None
        if overview.head_time_us is None
        else {"epoch": overview.head_epoch, "epoch_time": iso_text(overview.head_time_us)},
        "published_epoch": overview.published_epoch,
        "rows_per_s": round(overview.rows_per_s, 3),
        "held_back_us": overview.held,
        "latency_last_minute_ms": {name: round(value, 1) for name, value in overview.latency_ms.items()},
        "dead_letters": overview.dead_letters,
        "replicas": [replica_json(replica) for replica in health.replicas],
    }


def replica_json(replica: ReplicaHealth) -> dict[str, object]:
    """A replica's state for a program."""
    return {
        "replica": replica.replica,
        "environment": replica.environment,
        "state": replica.state,
        "alive": replica.alive,
        "epoch": replica.epoch,
        "lag_epochs": replica.lag_epochs,
        "within_lead": replica.within_lead,
        "epoch_ms": round(replica.epoch_s * 1000, 1),
        "restarts": replica.restarts,
        "starting_s": None if replica.starting_s is None else round(replica.starting_s, 1),
        "working_on": replica.working_on if replica.working_on >= 0 else None,
        "under_way_s": round(replica.under_way_s, 1),
        "tasks": replica.tasks,
        "tasks_done": replica.tasks_done,
        "executors": replica.executors,
        "executors_lost": replica.executors_lost,
        "pid": replica.pid,
        "host": replica.host,
        "note": replica.note,
    }
