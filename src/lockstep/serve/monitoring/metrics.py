"""Metrics of all jobs, as Prometheus reads them: made from the looks that pages share, so a scrape costs little.

What is counted is in the jobs' stores and not in this process: a service that is started anew goes on where it was.
Names follow Prometheus' conventions. Every metric of a job has the label ``lockstep_job``: ``job`` is Prometheus' own.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from lockstep.clock import US_PER_S
from lockstep.control.operations.model import State
from lockstep.control.status.health import ReplicaHealth
from lockstep.errors import LockstepError
from lockstep.serve.looks.look import Look
from lockstep.serve.looks.shared import Looks

JOBS_MAX = 200
"""More jobs than these are left out: labels have to stay few."""
JOB_STATES = ("healthy", "starting", "degraded", "stalled", "stopping", "stopped", "not running")
OPERATION_STATES: tuple[State, ...] = ("asked", "running", "waiting", "rolling-back", "done", "rolled-back", "refused")
_QUANTILES = {"0.5": "p50", "0.99": "p99", "1": "max"}
Family = GaugeMetricFamily | CounterMetricFamily


@dataclass(frozen=True)
class Metric:
    """One metric: its values, each with the values of ``labels``. A value of None is left out."""

    name: str
    help: str
    values: Callable[[Look], Iterable[tuple[tuple[str, ...], float | None]]]
    labels: tuple[str, ...] = ()

    def family(self, looks: Sequence[Look]) -> Family:
        """What Prometheus is told of all jobs. A name that ends in ``_total`` only grows."""
        names = ("lockstep_job", *self.labels)
        made: Family
        if self.name.endswith("_total"):
            made = CounterMetricFamily(self.name, self.help, labels=names)
        else:
            made = GaugeMetricFamily(self.name, self.help, labels=names)
        for look in looks:
            for labels, value in self.values(look):
                if value is not None:
                    made.add_metric([look.job, *labels], value)
        return made


def _job(name: str, about: str, value: Callable[[Look], float | None]) -> Metric:
    return Metric(name, about, lambda look: [((), value(look))])


def _replica(name: str, about: str, value: Callable[[Look, ReplicaHealth], float | None]) -> Metric:
    return Metric(
        name,
        about,
        lambda look: [((one.replica,), value(look, one)) for one in look.overview.health.replicas],
        ("replica",),
    )


def _executors(one: ReplicaHealth, count: int | None) -> float | None:
    return None if one.executors is None else count


def _watermark_lag_s(look: Look) -> float | None:
    return None if look.watermark_us is None else max(0.0, (look.at_us - look.watermark_us) / US_PER_S)


METRICS: tuple[Metric, ...] = (
    Metric(
        "lockstep_job_state",
        "1 for the state that the job is in, 0 for the others.",
        lambda look: [((state,), float(look.overview.health.state == state)) for state in JOB_STATES],
        ("state",),
    ),
    _job(
        "lockstep_job_wanted",
        "1 while the job is to run, 0 once somebody has stopped it.",
        lambda look: float(look.order is not None and look.order.wanted),
    ),
    _job(
        "lockstep_job_active",
        "0 while the job is deactivated and seals nothing.",
        lambda look: float(not look.steering.paused),
    ),
    _job(
        "lockstep_job_generation",
        "Counts the changes of code, shape or settings.",
        lambda look: None if look.order is None else look.order.generation,
    ),
    _job("lockstep_epochs_sealed_total", "Epochs that were sealed.", lambda look: look.overview.head_epoch + 1),
    _job(
        "lockstep_epochs_published_total",
        "Epochs that became visible in all sinks.",
        lambda look: look.overview.published_epoch + 1,
    ),
    _job(
        "lockstep_last_publication_age_seconds",
        "How long ago something was published.",
        lambda look: look.publication_age_s,
    ),
    Metric(
        "lockstep_latency_seconds",
        "Age of an epoch's oldest record when it was published, over the last minute.",
        lambda look: [
            ((quantile,), None if (ms := look.overview.latency_ms.get(name)) is None else ms / 1000)
            for quantile, name in _QUANTILES.items()
        ],
        ("quantile",),
    ),
    _job("lockstep_input_records_per_second", "Records that were read of late.", lambda look: look.overview.rows_per_s),
    _job(
        "lockstep_backlog_records",
        "Records in journals that are in no epoch yet. Absent where only brokers know.",
        lambda look: look.waiting_records,
    ),
    _job(
        "lockstep_backlog_epochs", "Epochs that are sealed and not published yet.", lambda look: look.unpublished_epochs
    ),
    _job("lockstep_watermark_lag_seconds", "How far event time is behind the clock.", _watermark_lag_s),
    _job(
        "lockstep_dead_letters",
        "Records that were set aside and wait for somebody.",
        lambda look: look.overview.dead_letters,
    ),
    _job(
        "lockstep_divergences_total", "How often replicas disagreed about an epoch.", lambda look: len(look.divergences)
    ),
    _job("lockstep_replicas_wanted", "How many replicas there should be.", lambda look: look.settings.replicas),
    _job(
        "lockstep_replicas_healthy",
        "Replicas within the lead: with two of them, losing one does not show.",
        lambda look: look.ready,
    ),
    _job(
        "lockstep_spares_ready",
        "Booted processes that wait to become a replica.",
        lambda look: sum(bool(one.get("ready")) for one in look.spares),
    ),
    _replica("lockstep_replica_up", "1 while the replica's process lives.", lambda _look, one: float(one.alive)),
    _replica(
        "lockstep_replica_lag_epochs", "How far it is behind the newest epoch.", lambda _look, one: one.lag_epochs
    ),
    _replica("lockstep_replica_epoch_seconds", "What an epoch takes it of late.", lambda _look, one: one.epoch_s),
    _replica("lockstep_replica_restarts_total", "Restarts in this run of the job.", lambda _look, one: one.restarts),
    _replica(
        "lockstep_replica_resident_memory_bytes",
        "Memory of its processes, if they are on the host of the service.",
        lambda look, one: look.memory_bytes.get(one.replica),
    ),
    _replica(
        "lockstep_replica_recovery_seconds",
        "How long it was away when it last came back.",
        lambda look, one: look.recoveries_s.get(one.replica),
    ),
    _replica(
        "lockstep_replica_executors",
        "Executors that Spark has for it. Absent where it needs none.",
        lambda _look, one: _executors(one, one.executors),
    ),
    _replica(
        "lockstep_replica_executors_lost_total",
        "Executors that died since it started.",
        lambda _look, one: _executors(one, one.executors_lost),
    ),
    Metric(
        "lockstep_operations",
        "Operations that are kept, by their state.",
        lambda look: [
            ((state,), float(sum(one.state == state for one in look.operations))) for state in OPERATION_STATES
        ],
        ("state",),
    ),
    _job(
        "lockstep_operation_age_seconds",
        "Since when the operation under way was asked for. Absent while there is none.",
        lambda look: next(((look.at_us - one.asked_us) / US_PER_S for one in look.operations if one.is_open), None),
    ),
)


class JobsCollector(Collector):
    """Looks at all jobs whenever Prometheus asks."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    def collect(self) -> Iterator[Family]:
        """All metrics. A job that cannot be looked at is named, and does not hide the others."""
        looks, readable = [], {}
        names = self._looks.names()
        for name in names[:JOBS_MAX]:
            try:
                looks.append(self._looks.look(name))
                readable[name] = 1.0
            except LockstepError:
                readable[name] = 0.0
        yield _build_info()
        yield GaugeMetricFamily("lockstep_jobs", "Jobs that there are.", value=len(names))
        yield _readable(readable)
        for metric in METRICS:
            yield metric.family(looks)


def _build_info() -> GaugeMetricFamily:
    """As people join it with other metrics: the value is always 1."""
    labels = {"version": version("lockstep"), "pyspark": version("pyspark"), "python": platform.python_version()}
    made = GaugeMetricFamily("lockstep_build_info", "What the service runs.", labels=list(labels))
    made.add_metric(list(labels.values()), 1)
    return made


def _readable(readable: Mapping[str, float]) -> GaugeMetricFamily:
    made = GaugeMetricFamily("lockstep_job_readable", "0 if the job's store cannot be read.", labels=["lockstep_job"])
    for name, value in readable.items():
        made.add_metric([name], value)
    return made


class Metrics:
    """The text of a scrape."""

    def __init__(self, looks: Looks) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(JobsCollector(looks))

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, in the form that whoever asks understands best; and its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind
