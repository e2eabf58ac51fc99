"""``job.start()`` and ``job.run()``: supervisor, agent and replicas as `lockstep run` has them, held by a program."""

from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from lockstep.api.job import Job, checked_options
from lockstep.api.loading import being_loaded
from lockstep.config import STORE_FOLDER
from lockstep.connect.specs import FilesSource, JournalSource
from lockstep.connect.writing import Journal
from lockstep.credentials import write_private
from lockstep.durations import Duration, duration_us
from lockstep.errors import LockstepError, PlanError, RunError
from lockstep.library.code import job_file
from lockstep.library.picture import Screen, in_notebook
from lockstep.library.process import SupervisorProcess
from lockstep.library.view import Home, JobResult, JobView
from lockstep.plan.graph import Graph
from lockstep.plan.schema import did_you_mean
from lockstep.store.home import job_folder
from lockstep.store.protocols import Store
from lockstep.store.python_records import Records

IN_A_TEMPORARY_FOLDER: Mapping[str, Any] = {"replicas": 1, "spares": 0, "orphan_timeout_s": 10.0}
"""Settings of a job whose state nobody keeps, unless it says otherwise: somebody wants to see what it computes, soon.

If this program and the supervisor are both killed, its agent ends by itself after the last of them."""
CATCH_UP_MAX = "10 minutes"
_POLL_S = 0.1
_EPOCHS_BETWEEN_STAGES = 3
"""What a stage has published is in a later one's results after at most so many epochs."""
_EPOCHS_LOOKED_BACK = 200
"""The newest published epoch is among these: replicas are never further apart."""
_running: set[RunningJob] = set()
"""Held until they are over: a handle that nobody keeps must not end its job."""


def start(
    job: Job,
    project: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    spark: Mapping[str, Any],
    *,
    fed: bool = True,
) -> RunningJob:
    """Start a job; what :meth:`Job.start` does. ``fed``: whether records can be put into it meanwhile."""
    _refuse_while_loaded(job)
    graph = job.graph()
    settings = checked_options(options)
    if project is None:
        _refuse_without_project(graph, fed=fed)
        settings = {**{name: v for name, v in IN_A_TEMPORARY_FOLDER.items() if name not in job.options}, **settings}
    text = job_file(job)
    home = Home.given(project) if project is not None else Home.new(job.name)
    with tempfile.TemporaryDirectory(prefix="lockstep-code-") as folder:
        file = Path(folder, "job.py")
        write_private(file, text)
        order = {
            "job_file": f"{file}:job",
            "project": str(home.project),
            "temporary": home.temporary,
            "run": settings,
            "spark": dict(spark),
        }
        return RunningJob(graph, home, order)


def run(
    job: Job,
    project: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    spark: Mapping[str, Any],
    *,
    show: bool | None,
) -> JobResult:
    """Run a job to its end; what :meth:`Job.run` does."""
    settings = checked_options({**job.options, **options})
    ends = bool(settings.get("until_done") or settings.get("available_now"))
    if project is None and not ends:
        # Nobody else can put anything into it: what is there is all there will be.
        options, ends = {**options, "until_done": True}, True
    with start(job, project, options, spark, fed=False) as running:
        try:
            if show if show is not None else in_notebook():
                running._followed(None)
            running.wait()
        except KeyboardInterrupt:
            if ends:
                raise
            # Ctrl-C is how such a run is ended.
            running.stop()
    return JobResult(running._graph, running._home)


class RunningJob(JobView):
    """A job that this program has started: feed it, look at it, end it. As a context it ends with the block.

    >>> with job.start() as running:  # doctest: +SKIP
    ...     running.put("logins", [{"user": "ann", "ok": False}])
    ...     running.catch_up()
    ...     print(running.read("failures").pandas())

    What makes the job impossible is raised by whatever is called next. A notebook draws its state; :meth:`watch` keeps
    the drawing up to date.
    """

    def __init__(self, graph: Graph, home: Home, order: Mapping[str, Any]) -> None:
        super().__init__(graph, home)
        self._put_until: dict[tuple[str, str], int] = {}
        self._process = SupervisorProcess(order, job_folder(home.project / STORE_FOLDER, graph.name))
        self._at_exit = weakref.finalize(self, _end, self._process, home, os.getpid())
        _running.add(self)
        try:
            self._process.wait_ready()
        except BaseException:
            self._ended_by(self._process.kill)
            raise

    @property
    def is_running(self) -> bool:
        """Whether it has not come to its end."""
        return not self._process.look(0.0)

    def put(self, source: str, records: Records, *, once: str | None = None) -> int:
        """Append records to the journal that a source reads; how many. They are on disk when this returns.

        ``source`` is the source's name in the job, or the journal's; ``records`` and ``once`` are those of
        :meth:`lockstep.Journal.put`.

        >>> running.put("logins", [{"user": "ann", "ok": False}])  # doctest: +SKIP
        1
        """
        self._check()
        spec = self._journal(source)
        schema = spec.values.ddl()
        with Journal(spec.name, schema=schema, partitions=spec.partitions, project=self.project) as journal:
            put = journal.put(records, once=once)
        sources = ((step.id, step.spec) for step in self._graph.sources)
        readers = [name for name, one in sources if isinstance(one, JournalSource) and one.name == spec.name]
        self._put_until |= {(reader, str(part)): end for reader in readers for part, (_, end) in put.positions.items()}
        return put.records

    def catch_up(self, timeout: Duration = CATCH_UP_MAX) -> None:
        """Wait until all that was :meth:`put` is computed and published. LS0699 if that takes longer.

        A window is published when event time has passed its end: records of later times bring it there.
        """
        deadline_s = time.monotonic() + duration_us(timeout) / 1e6
        with self._store() as store:
            while not self._is_published(store):
                self._check()
                if time.monotonic() > deadline_s:
                    raise RunError(
                        "LS0699",
                        f'job "{self.job}" has not published all that was put into it within {timeout}',
                        why=f"it is {self._status(store)['state']}.",
                        hint=f"wait longer, or look at {self._folder / 'replicas'}/*/log.txt.",
                    )
                self._process.look(_POLL_S)

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the job is over (all its input is processed, somebody has stopped it); whether it is.

        >>> running.wait("10 seconds")  # doctest: +SKIP
        False
        """
        return self._is_over(None if timeout is None else duration_us(timeout) / 1e6)

    def watch(self, timeout: Duration | None = None) -> None:
        """Show the job as it is, again and again, for so long or until it is over; the interrupt of the cell ends it.

        In a notebook the output of the cell is redrawn; elsewhere a line is written whenever something has changed.
        """
        with suppress(KeyboardInterrupt):
            self._followed(timeout)

    def stop(self) -> None:
        """End the job after the epoch under way; nothing of it runs when this returns. A second Ctrl-C ends it at once.

        In a project folder it goes on from there when it is started again.
        """
        self._ended_by(self._process.stop)
        self._process.check()

    def kill(self) -> None:
        """End the job at once; nothing of it runs when this returns, and nothing that was published is lost."""
        self._ended_by(self._process.kill)

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except LockstepError:
            # What went wrong in the block comes first.
            if error is None:
                raise

    def _followed(self, timeout: Duration | None) -> None:
        screen, ends_s = Screen(), None if timeout is None else time.monotonic() + duration_us(timeout) / 1e6
        while ends_s is None or time.monotonic() < ends_s:
            screen.show(self)
            if self._is_over(1.0):
                screen.show(self)
                return

    def _ended_by(self, end: Callable[[], None]) -> None:
        """End the process, whatever interrupts that; whoever is impatient has it killed."""
        try:
            if not self._process.ended:
                end()
        except KeyboardInterrupt:
            self._process.kill()
            raise
        finally:
            if self._process.ended:
                self._forget()

    def _is_over(self, timeout_s: float | None) -> bool:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._process.look(None if deadline_s is None else max(0.0, deadline_s - time.monotonic())):
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False
        self._forget()
        self._process.check()
        return True

    def _forget(self) -> None:
        _running.discard(self)
        self._at_exit.detach()

    def _check(self) -> None:
        """Raise what ended the job, or that it is over."""
        if self._is_over(0.0):
            raise RunError(
                "LS0697",
                f'job "{self.job}" is over',
                why="it has processed all its input, or somebody has stopped it.",
                hint="read() and status() still answer; start() begins anew.",
            )

    def _journal(self, name: str) -> JournalSource:
        sources = {step.id: step.spec for step in self._graph.sources}
        journals = {spec.name: spec for spec in sources.values() if isinstance(spec, JournalSource)}
        spec = sources.get(name) or journals.get(name)
        if isinstance(spec, JournalSource):
            return spec
        known = [*(name for name, spec in sources.items() if isinstance(spec, JournalSource)), *journals]
        there = ", ".join(dict.fromkeys(known))
        raise RunError(
            "LS0624",
            f'nothing can be put into "{name}"',
            why=f"it is {spec.describe()}." if spec is not None else "the job has no such source.",
            hint=did_you_mean(name, known)
            or (f"its journals are: {there}." if there else "ls.journal(...) can be fed."),
        )

    def _is_published(self, store: Store) -> bool:
        head = store.head()
        published = store.published(max(0, head.epoch - _EPOCHS_LOOKED_BACK), head.epoch) if head is not None else []
        levels = max(stage.level for stage in self._graph.stages)
        newest = max((one.epoch for one in published), default=-1) - _EPOCHS_BETWEEN_STAGES * levels
        entry = store.entry(newest) if newest >= 0 else None
        if entry is None:
            return not self._put_until
        return all(entry.cut.get(source, {}).get(part, 0) >= end for (source, part), end in self._put_until.items())


def _end(process: SupervisorProcess, home: Home, owner: int) -> None:
    """This program ends, and nobody has ended the job."""
    if os.getpid() != owner or process.ended:
        return
    if home.temporary:
        process.kill()
    else:
        process.stop()


def _refuse_while_loaded(job: Job) -> None:
    file = being_loaded()
    if file is not None:
        raise PlanError(
            "LS0125",
            f'job "{job.name}" is started by the file that is being loaded',
            why=f"Lockstep executes {file.name} to find the job in it, and is about to run that itself.",
            hint='put it under if __name__ == "__main__": at the end of the file; then `python` and `lockstep run` '
            "both run the file.",
        )


def _refuse_without_project(graph: Graph, *, fed: bool) -> None:
    """A temporary folder is empty: a job that reads from it would wait for ever, or be done at once."""
    for step in graph.sources:
        spec = step.spec
        if isinstance(spec, FilesSource) and not Path(spec.path).is_absolute():
            what = f"the folder {spec.path} is looked for in the project folder"
        elif isinstance(spec, JournalSource) and not fed:
            what = f"the journal {spec.name} is kept in the project folder"
        else:
            continue
        raise RunError(
            "LS0695",
            f'source "{step.id}" needs a project folder',
            why=f"{what}, and without project= that is a new, empty one.",
            hint='project="." is the current folder; ls.collection(...) has its records in the job; '
            "with job.start() as running: running.put(...) feeds a journal.",
        )
