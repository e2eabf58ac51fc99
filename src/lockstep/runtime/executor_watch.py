"""The thread that watches a replica's executors, where the master is not local.

Spark goes on without a word when an executor dies, and takes new ones whenever the cluster gives some. So people are
told of each that is lost, and each that comes is asked whether it sees what it has to see (``spark/sharing.py``), the
first ones before the first epoch.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.connect.remote.paths import AnyPath, RemotePath, location
from lockstep.connect.sinks.manifests import Layout
from lockstep.errors import LockstepError, RunError, StoreError
from lockstep.plan.graph import Graph
from lockstep.runtime.endings import is_job_error
from lockstep.runtime.spark.address import check_from_executors
from lockstep.runtime.spark.environment import environment_hash
from lockstep.runtime.spark.executors import Executor, executors, on_each
from lockstep.runtime.spark.sharing import SHARE_HINT, Answer, Place, ask, forget, machine, unshared
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.home import job_folder
from lockstep.store.journal import JOURNALS_FOLDER
from lockstep.store.opening import embedded_folder

INTERVAL_S = 0.5
AGAIN_S = 10.0
"""Until executors are asked again of which one was too busy to answer, or died meanwhile."""
ROUNDS_MAX = 3
"""A task may end up on another executor than the one it is for, if that is busy for longer than Spark waits."""
_FOLDERS = frozenset({"files", "delta"})
"""Kinds of connectors whose path is a folder that executors read or write."""


def places(spec: ReplicaSpec, graph: Graph) -> tuple[Place, ...]:
    """Every folder that executors use for this job."""
    project = Path(spec.project)
    found = _own_places(spec, graph)
    for source in graph.sources:
        if source.spec.kind in _FOLDERS:
            folder = str(project / source.spec.to_json()["path"])
            found.append(Place(f'what source "{source.id}" reads', folder, read_only=True))
    for sink in graph.sinks:
        path = str(sink.spec.to_json().get("path", ""))
        if sink.spec.kind == "sqlite":
            # Whoever stages rows opens the database, to see that it is the sink's.
            found.append(_beside(f'the database of sink "{sink.id}"', location(path, project).parent))
        if sink.spec.kind in _FOLDERS:
            found.append(_beside(f'the output of sink "{sink.id}"', location(path, project)))
    return tuple(found)


def _own_places(spec: ReplicaSpec, graph: Graph) -> list[Place]:
    """Those that are Lockstep's own. With checkpoints at an address, folders of this host only if SQLite files are."""
    settings, home = spec.parsed_settings(), Path(spec.home)
    own = job_folder(home, spec.job)
    if not settings.checkpoints:
        found = [
            Place("the replica's checkpoints", str(spec.folder)),
            Place("staged rows, tables and the journals inside the job", str(own)),
        ]
        if not settings.journals or any(one.spec.kind == "journal" for one in graph.sources):
            found.append(Place("journals and dead letters", str(home / JOURNALS_FOLDER)))
        return found
    found = []
    if graph.boundaries or graph.loops or any(sink.spec.kind != "files" for sink in graph.sinks):
        # A files sink stages in its own folder. Checkpoints are asked about in another way (``spark/address.py``).
        found.append(Place("staged rows", settings.checkpoints))
    if not settings.journals and (graph.boundaries or graph.loops):
        found.append(Place("the journals inside the job", str(own)))
    if embedded_parts(graph, settings.journals, shared_store=embedded_folder(spec.store) is None):
        found.append(Place("journals and dead letters", str(home / JOURNALS_FOLDER)))
    return found


def _beside(what: str, folder: AnyPath) -> Place:
    """Where to probe a sink's folder: above it, since nothing else is to be in it, if it is not a disk of its own.

    On a remote system, whose folders may be all that we may write to, it is among the sink's own small files.
    """
    if isinstance(folder, RemotePath):
        return Place(what, str(Layout(folder).control))
    above = folder if folder.is_mount() else next(one for one in folder.parents if one.exists())
    return Place(what, str(above)) if os.access(above, os.W_OK) else Place(what, str(folder), read_only=True)


def embedded_parts(graph: Graph, journals: str = "", *, shared_store: bool = False) -> list[str]:
    """What of a job has executors open SQLite files of the driver's host: they cannot be shared between machines.

    With ``journals`` those inside the job and its dead letters are topics; a source that skips records also notes an
    event in the store.
    """
    found = [f'source "{one.id}" (a journal)' for one in graph.sources if one.spec.kind == "journal"]
    if not journals and (graph.boundaries or graph.loops):
        found.append("the journals between its stages")
    skipping = [one for one in graph.sources if one.spec.to_json().get("on_bad_record") == "skip"]
    if not (journals and shared_store):
        found += [f'source "{one.id}" (dead letters: on_bad_record="skip")' for one in skipping]
    steps = [one for one in graph.steps if not journals and getattr(one, "on_error", "") == "skip"]
    return found + [f'step "{one.id}" (dead letters: on_error="skip")' for one in steps]


class ExecutorWatch(threading.Thread):
    """Knows how many executors there are, and how many were lost since the replica's start."""

    def __init__(
        self,
        session: SparkSession,
        spec: ReplicaSpec,
        graph: Graph,
        note: Callable[[str, str], None],
        on_change: Callable[[], None],
        on_failure: Callable[[LockstepError], None],
    ) -> None:
        super().__init__(name="executor-watch", daemon=True)
        self._session = session
        self._places = places(spec, graph)
        self._checkpoints = spec.parsed_settings().checkpoints
        shared = embedded_folder(spec.store) is None
        self._embedded = embedded_parts(graph, spec.parsed_settings().journals, shared_store=shared)
        self._note = note
        self._on_change = on_change
        self._on_failure = on_failure
        self._asked: frozenset[str] = frozenset()
        self._ask_from_s = 0.0
        self._lost: frozenset[str] = frozenset()
        self._alive: tuple[Executor, ...] = ()

    @property
    def counts(self) -> tuple[int, int]:
        """How many are there, and how many were lost."""
        return len(self._alive), len(self._lost)

    def begin(self, timeout_s: float, should_stop: Callable[[], bool]) -> None:
        """Wait for the first executor, ask all that are there, and go on watching; LS069x if the job cannot run so."""
        deadline_s = time.monotonic() + timeout_s
        while not self.look() and not should_stop():
            if time.monotonic() > deadline_s:
                raise self._none_came(timeout_s)
            time.sleep(INTERVAL_S / 5)
        self.ask_new()
        self.start()

    def run(self) -> None:
        """Look again and again, until the process ends."""
        while True:
            time.sleep(INTERVAL_S)
            self.look()
            try:
                self.ask_new()
            except LockstepError as error:
                if is_job_error(error):
                    self._on_failure(error)
                    return
                # A full disk, say: it may pass.
                print(f"executors were not asked what they see: {error}", file=sys.stderr, flush=True)
                self._ask_from_s = time.monotonic() + AGAIN_S

    def look(self) -> bool:
        """Whether there is one and all can compute; people are told of those that were lost since the last look."""
        found = executors(self._session)
        before, lost = self.counts, [one for one in found if one.removed]
        self._alive = tuple(one for one in found if one.host and not one.removed)
        fresh = [one for one in lost if one.id not in self._lost]
        self._lost |= {one.id for one in fresh}
        if self.counts != before:
            # At once, if the store can take it; else with the next report.
            with suppress(StoreError):
                self._on_change()
        for one in fresh:
            self._note(
                "executor-lost", f"{one.id} on {one.host or 'an unknown host'}, {len(self._alive)} left: {one.removed}"
            )
        return bool(self._alive) and all(one.host or one.removed for one in found)

    def ask_new(self) -> None:
        """Ask those that have not been asked yet, together with the rest: a task for each."""
        targets = self._alive
        new = [one for one in targets if one.id not in self._asked]
        if not new or time.monotonic() < self._ask_from_s:
            return
        if self._all_asked(targets):
            if self._asked:
                self._note("executor-came", ", ".join(f"{one.id} on {one.host}" for one in new))
            self._asked |= {one.id for one in targets}
        else:
            self._ask_from_s = time.monotonic() + AGAIN_S

    def _all_asked(self, targets: Sequence[Executor]) -> bool:
        """Whether each of them has answered well; False if one was too busy, or died meanwhile."""
        asked = ask(self._places)
        try:
            for _ in range(ROUNDS_MAX):
                answers = on_each(self._session, targets, asked.answered)
                if (refusal := unshared(asked, answers) or why_not_alike(answers, self._embedded)) is not None:
                    raise refusal
                if len({(one.host, one.where) for one in answers}) == len(targets):
                    check_from_executors(self._session, targets, self._checkpoints)
                    return True
        except (PySparkException, Py4JError) as error:
            if self._asked or {one.id for one in targets} & self._lost:
                print(f"executors were not asked what they see: {error}", file=sys.stderr, flush=True)
                return False
            raise self._cannot_compute(error) from None
        finally:
            forget(asked)
        return False

    def _none_came(self, timeout_s: float) -> RunError:
        return RunError(
            "LS0691",
            f"no executor came within {timeout_s:g} s",
            why=f"{self._session.sparkContext.master} has given none: its cores or its memory are taken, it has no "
            "worker, or executors cannot reach the driver at "
            f"{self._session.conf.get('spark.driver.host')} and end again.",
            hint="look at the master's page and at the executors' logs in the workers' folders; spark.cores.max and "
            "spark.executor.memory say what a replica asks for, spark.driver.host where executors find it.",
        )

    def _cannot_compute(self, error: Exception) -> RunError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = next((line for line in reversed(lines) if "Error" in line and not line.startswith("at ")), lines[0])
        return RunError(
            "LS0691",
            "executors cannot run Lockstep's Python",
            why=told[:600],
            hint=f"install Python ({sys.executable}) and Lockstep at the same path on every host. And {SHARE_HINT}",
        )


def why_not_alike(answers: Sequence[Answer], embedded: Sequence[str]) -> RunError | None:
    """The refusal if an executor computes with other versions, or could only do harm to ``embedded`` parts."""
    mine, here = environment_hash(), machine()
    for one in answers:
        if one.environment != mine:
            return _other_versions(one, mine)
        if one.machine != here and embedded:
            return _embedded_elsewhere(one, embedded)
    return None


def _other_versions(answer: Answer, mine: str) -> RunError:
    return RunError(
        "LS0694",
        f"executor {answer.executor} on host {answer.host} has other versions than the driver",
        why=f"of Python, Spark or Arrow ({mine} here, {answer.environment} there): results could differ.",
        hint="install the same environment at the same path on every host of the cluster.",
    )


def _embedded_elsewhere(answer: Answer, parts: Sequence[str]) -> RunError:
    return RunError(
        "LS0692",
        f"executor {answer.executor} is on another machine ({answer.host}) and would open SQLite files of this one",
        why=f"{'; '.join(parts)}: SQLite cannot be shared between machines, whatever the file system.",
        hint="read Kafka or files instead of journals, and have those inside the job in Kafka (in lockstep.toml: "
        'journals = "kafka://HOST:PORT/lockstep"), or set on_bad_record="stop" and on_error="fail"; or use local '
        "masters, with replicas on several hosts.",
    )
