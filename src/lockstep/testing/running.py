"""A whole job over in-memory input, in one call."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lockstep.api.job import Job
from lockstep.api.topology.topology import Topology
from lockstep.connect.protocols import CHANGED
from lockstep.connect.reading import Reader
from lockstep.durations import Duration, duration_us
from lockstep.errors import RunError
from lockstep.plan.graph import Graph
from lockstep.plan.schema import did_you_mean, parse_schema
from lockstep.plan.specs import SinkSpec
from lockstep.store.dead_letters import SCHEMA, journal_name
from lockstep.store.journal import open_journal
from lockstep.testing.inputs import EpochPlan, Instant, Timeline, instant_us, planned
from lockstep.testing.session import shared_session
from lockstep.testing.substitute import JobInMemory, in_memory_sinks
from lockstep.testing.tables import Rows
from lockstep.testing.trial import Trial, disagreement

START = "2026-01-01T00:00:00Z"
"""Epoch time of epoch 0, unless the test says otherwise."""
REPLICAS = 2
"""Of a run that does not say: with two, each with its own partitions, most of what is not deterministic is found."""
REPLICAS_MAX = 5
ENDING_EPOCHS_MAX = 500
"""After the end of the input: some for each stage, and as many as a loop goes round."""
HEARTBEAT_S = 86_400.0
"""A gap of ten heartbeats counts as a pause of the whole job; between the epochs of a test any time may pass."""


class Result:
    """What a job has published, by sink. A sink is known by its name, by where the job writes it, or alone."""

    def __init__(self, names: Mapping[str, str], tables: Mapping[str, Sequence[pa.Table]], dead: pa.Table) -> None:
        self._names = names
        self._tables = tables
        self.dead_letters = Rows(dead)
        """The records that steps with ``on_error="skip"`` could not take."""

    def sink(self, name: str | None = None) -> Rows:
        """Everything that was published in a sink, epoch after epoch."""
        return Rows(pa.concat_tables(self._of(name)))

    def epochs(self, name: str | None = None) -> list[Rows]:
        """What each epoch published in a sink: ``result.epochs("alerts")[2]``."""
        return [Rows(table) for table in self._of(name)]

    def latest(self, name: str | None = None, *, by: str | Sequence[str]) -> Rows:
        """The newest row for each value of these columns: how things stand, where results come as updates.

        Where rows are taken back (``.latest()``), those that nothing has replaced are not there any more.
        """
        columns = [by] if isinstance(by, str) else list(by)
        found = self.sink(name)
        newest = {repr([row[column] for column in columns]): index for index, row in enumerate(found)}
        left = [index for index in newest.values() if found[index].get(CHANGED, 1) > 0]
        table = found.table.take(pa.array(sorted(left), pa.int64()))
        return Rows(table.select([one for one in found.columns if one != CHANGED]))

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of the sinks."""
        return tuple(self._tables)

    def _of(self, name: str | None) -> Sequence[pa.Table]:
        if name is None and len(self._tables) == 1:
            return next(iter(self._tables.values()))
        found = self._names.get(name or "")
        if found is None:
            raise RunError(
                "LS0642",
                f'the job has no sink "{name}"' if name else f"the job has {len(self._tables)} sinks",
                why=f"it has: {', '.join(self._names)}.",
                hint=did_you_mean(name, list(self._names)) if name else "say which one.",
            )
        return self._tables[found]

    def __repr__(self) -> str:
        counts = [f"{name}: {sum(table.num_rows for table in tables)} rows" for name, tables in self._tables.items()]
        return f"<result {', '.join(counts)}>"


def run(
    job: Job | Topology,
    inputs: Mapping[str, Timeline] | Timeline,
    *,
    spark: SparkSession | None = None,
    replicas: int | None = None,
    start: Instant = START,
    every: Duration = "1 second",
    until_done: bool = False,
    folder: Path | None = None,
    **settings: Any,
) -> Result:
    """Run a job (or a topology) over these epochs, with the code that replicas run, and return what it published.

    Whatever kind of source the job has, its records come from ``inputs``: for each source by its name a list with one
    list of records for each epoch (or just that list, if there is one source). Whatever kind of sink it has, its
    output is in the result. :data:`HEARTBEAT`, :data:`CRASH`, :func:`at` and :func:`wait` stand between the epochs::

        result = run(job, {"logins": [[ann, bob], wait("1 minute"), [ann], CRASH, HEARTBEAT]}, spark=lockstep_spark)
        assert result.sink("alerts") == [{"user": "ann", "failures": 2}]

    The job runs as so many ``replicas`` (two), each with another number of partitions; an output that is not the same
    in all of them fails the run. Epoch 0 is at ``start``, each further one ``every`` later. With ``until_done`` more
    epochs follow the last one, as in `lockstep run --until-done`: event time comes to its end, so that every window
    closes and every event-time timer fires, and what is on its way between stages and in loops comes out. ``settings``
    are options of the job (:class:`lockstep.Job`). ``folder`` keeps what is on disk, to look at.
    """
    wanted = REPLICAS if replicas is None else replicas
    if not 1 <= wanted <= REPLICAS_MAX:
        raise RunError("LS0640", f"{wanted} replicas", why=f"a test runs 1 to {REPLICAS_MAX} of them.")
    whole = job.job() if isinstance(job, Topology) else job
    stand_in = JobInMemory(whole)
    epochs = planned(_by_source(stand_in.graph(), inputs), instant_us(start), duration_us(every))
    with tempfile.TemporaryDirectory(prefix="lockstep-test-", ignore_cleanup_errors=True) as temporary:
        options = {"heartbeat_interval_s": HEARTBEAT_S, "until_done": until_done, **settings}
        trial = Trial(spark or shared_session(), stand_in, folder or Path(temporary), options)
        try:
            for epoch in epochs:
                _run_epoch(trial, epoch, wanted)
            ended = _run_to_the_end(trial, duration_us(every)) if until_done else 0
            return _result(trial, whole.graph(), len(epochs) + ended)
        finally:
            trial.close()


def _by_source(graph: Graph, inputs: Mapping[str, Timeline] | Timeline) -> dict[str, Timeline]:
    """The timelines by source; a source that is not named gets nothing."""
    known = [step.id for step in graph.sources]
    if not isinstance(inputs, Mapping):
        if len(known) != 1:
            raise RunError(
                "LS0640",
                f"the job has {len(known)} sources, and the input is a list",
                why=f"the sources are: {', '.join(known)}.",
                hint=f'give each its own: {{"{known[0]}": [...]}}.',
            )
        return {known[0]: inputs}
    for name in inputs:
        if name not in known:
            raise RunError(
                "LS0640",
                f'the job has no source "{name}"',
                why=f"its sources are: {', '.join(known)}.",
                hint=did_you_mean(name, known),
            )
    return dict(inputs)


def _run_epoch(trial: Trial, plan: EpochPlan, replicas: int) -> None:
    trial.now_us = plan.at_us
    for source, records in plan.records.items():
        if records:
            trial.put(source, records)
    _start(trial, replicas)
    if plan.crash:
        for one in trial.replicas.values():
            one.crash_in_next_epoch()
    epoch = trial.seal_at(plan.at_us).epoch
    if plan.crash:
        trial.wait_for_crashes(epoch)
        _start(trial, replicas)
    trial.wait(epoch)
    _check_equal(trial, epoch)


def _run_to_the_end(trial: Trial, every_us: int) -> int:
    """Epochs after the end of the input until nothing is left to be done; how many there were."""
    for number in range(ENDING_EPOCHS_MAX):
        if number and trial.is_over:
            return number
        epoch = trial.seal_at(trial.now_us + every_us, ending=True).epoch
        trial.wait(epoch)
        _check_equal(trial, epoch)
    raise RunError("LS0643", f"the job was not done {ENDING_EPOCHS_MAX} epochs after the end of its input")


def _start(trial: Trial, replicas: int) -> None:
    """Start the replicas that do not run, each of another shape: what depends on the shape shows as a difference."""
    for number in range(replicas):
        name = f"r{number}"
        if name not in trial.replicas or not trial.replicas[name].is_running:
            trial.start(name, partitions=1 + 2 * number, tasks=1 + number)


def _check_equal(trial: Trial, epoch: int) -> None:
    """Replicas that differ raise in between; this is for sinks that cannot be compared row by row."""
    found: dict[str, set[str]] = {}
    for (_, sink), digest in trial.digests(epoch).items():
        found.setdefault(sink, set()).add(digest)
    for sink, digests in found.items():
        if len(digests) > 1:
            raise disagreement(epoch, sink, f"steps that run Python: {_suspects(trial)}.")


def _suspects(trial: Trial) -> str:
    return ", ".join(step.id for step in trial.graph.python_steps) or "none, so this is a fault of Lockstep"


def _result(trial: Trial, graph: Graph, epochs: int) -> Result:
    names: dict[str, str] = {}
    tables: dict[str, list[pa.Table]] = {}
    for sink in in_memory_sinks(graph):
        for name in (sink.id, *_places(sink.spec)):
            names.setdefault(name, sink.id)
        reader = Reader(trial.folder / "sinks" / sink.id)
        tables[sink.id] = [reader.table(epoch) for epoch in range(epochs)]
    return Result(names, tables, _dead_letters(trial))


def _places(spec: SinkSpec) -> list[str]:
    data = spec.to_json()
    return [str(data[name]) for name in ("path", "table", "name") if name in data]


def _dead_letters(trial: Trial) -> pa.Table:
    journal = open_journal(trial.place.home, journal_name(trial.graph.name), parse_schema(SCHEMA))
    try:
        begins, ends = journal.begins(), journal.ends()
        batches = [batch for part in ends for batch in journal.read(part, begins[part], ends[part])]
        return pa.Table.from_batches(batches, journal.schema)
    finally:
        journal.close()
