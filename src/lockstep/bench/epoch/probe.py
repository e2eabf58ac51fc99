"""The probe: looks into a replica from inside, on behalf of `lockstep bench epoch`.

The bench's job file calls :func:`attach`, so the replica under measurement runs its ordinary code; the probe puts a
stopwatch around a few methods (a microsecond each) and notes the steps of a start. Everything stays in memory until
the bench asks for it, except the notes of a start: the process that made them may be killed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from lockstep.clock import US_PER_S, wall_us

ASK_FILE = "collect"
SPANS_MAX = 20_000
_POLL_S = 0.25

REPLICA = "lockstep.runtime.replica"
PARTS = (
    ("lockstep.runtime.epoch.run", "EpochRunner", "__call__", "ours"),
    ("lockstep.runtime.epoch.work", "SparkWork", "compute", "compute"),
    ("lockstep.runtime.epoch.work", "SparkWork", "publish", "publish"),
    ("lockstep.runtime.epoch.stage_progress", "StageProgress", "done", "report"),
    ("lockstep.runtime.epoch.sealing", "Sealer", "_advances", "look_at_sources"),
    ("lockstep.runtime.epoch.sealing", "Sealer", "put", "seal"),
    ("lockstep.runtime.epoch.sealing", "Sealer", "_seal_when_due", "until_sealed"),
)
"""(module, class, method, part of an epoch). A unit test holds it to the code: a renamed method fails there."""
STEPS = (
    (REPLICA, "Replica", "_boot", "session"),
    ("lockstep.runtime.booted", "", "warm_up", "warm-up"),
    (REPLICA, "Replica", "_prepare", "seed"),
    (REPLICA, "Replica", "_start", "start"),
)
"""The same for the steps of a start; each is noted with its beginning and its end."""


class Probe:
    """What one replica's process has shown so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spans: deque[tuple[str, int, float]] = deque(maxlen=SPANS_MAX)
        self._first = True

    def note(self, step: str, begun_us: int, ended_us: int) -> None:
        """Write down a step of the start at once."""
        line = json.dumps({"step": step, "begun_us": begun_us, "ended_us": ended_us})
        with (self._folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def timed(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """``method`` with a stopwatch; the end of the very first epoch is a step of the start."""
        if inspect.isgeneratorfunction(method):
            return self._timed_steps(part, method)

        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            begun_us, begun_s = wall_us(), time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                self._spans.append((part, wall_us(), (time.perf_counter() - begun_s) * 1000))
                if part == "ours" and self._first:
                    self._first = False
                    self.note("first-epoch", begun_us, wall_us())
                    self.note("jvm", *_jvm_times_us())

        return call

    def _timed_steps(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a step machine: from its first step to its last."""

        @functools.wraps(method)
        def steps(*arguments: Any, **named: Any) -> Any:
            begun_s = time.perf_counter()
            answer = yield from method(*arguments, **named)
            self._spans.append((part, wall_us(), (time.perf_counter() - begun_s) * 1000))
            return answer

        return steps

    def stepped(self, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """``method`` with a note at its end."""

        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            begun_us = wall_us()
            answer = method(*arguments, **named)
            self.note(step, begun_us, wall_us())
            return answer

        return call

    def answer_when_asked(self) -> None:
        """Wait for the bench's question; then hand over every span and Spark's own reports, once per question."""
        answered = 0
        while True:
            asked = _asked(self._folder)
            if asked > answered:
                answered = asked
                document = {"spans": list(self._spans), "reports": spark_reports()}
                path = self._folder / f"{os.getpid()}.{asked}.json"
                path.with_suffix(".tmp").write_text(json.dumps(document), encoding="utf-8")
                path.with_suffix(".tmp").rename(path)
            time.sleep(_POLL_S)


def attach(folder: str) -> None:
    """Begin to look into this process if it is a replica's; the supervisor loads the job too, and is left alone."""
    replica = _replica_module()
    if replica is None:
        return
    probe = Probe(Path(folder))
    probe.note("process", _born_us(psutil.Process()), wall_us())
    for module, owner, method, part in PARTS:
        _put(getattr(importlib.import_module(module), owner), method, functools.partial(probe.timed, part))
    for _, owner, method, step in STEPS:
        _put(getattr(replica, owner) if owner else replica, method, functools.partial(probe.stepped, step))
    threading.Thread(target=probe.answer_when_asked, name="probe", daemon=True).start()


def _put(owner: object, method: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a method; one that is gone is left out, and its part is then missing in the figures."""
    if (found := getattr(owner, method, None)) is not None:
        setattr(owner, method, wrapped(found))


def _born_us(process: psutil.Process) -> int:
    return round(float(process.create_time()) * US_PER_S)


def _jvm_times_us() -> tuple[int, int]:
    """When the JVM was started, and when it began to make Spark's context."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    born = [_born_us(child) for child in psutil.Process().children() if child.name() == "java"]
    ready_us = int(context.startTime) * 1000 if context is not None else 0
    return min(born, default=ready_us), ready_us


def _replica_module() -> Any:
    """The module that runs this replica: started with ``-m`` it is ``__main__``."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", "")
    return main if name == REPLICA else sys.modules.get(REPLICA)


def _asked(folder: Path) -> int:
    try:
        return int((folder / ASK_FILE).read_text(encoding="utf-8") or 0)
    except FileNotFoundError:
        return 0


def spark_reports() -> list[dict[str, Any]]:
    """When each of the newest batches began, and Spark's own split of its time."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if session is None:
        return []
    found = []
    for query in session.streams.active:
        for one in query._jsq.recentProgress():
            report = json.loads(one.json())
            if report["numInputRows"]:
                found.append({"at": report["timestamp"], "duration_ms": report["durationMs"]})
    return found
