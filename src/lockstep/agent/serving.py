"""The agent's own life: it answers, looks after the processes of its jobs, and ends when nobody asks any more."""

from __future__ import annotations

import os
import platform
import queue
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import psutil

from lockstep import __version__
from lockstep.agent.client import ACT_TIMEOUT_S
from lockstep.agent.hosting import HostedJob, as_json
from lockstep.agent.server import AgentServer, Mount, Request, Route
from lockstep.runtime.spec import ReplicaSpec

_ANSWERING_S = 2.0
"""For the answer under way, before the process ends."""
_SLEPT_S = 5.0
"""Who wakes up so much later than it wanted to was stopped itself."""
_LOOK_S_MAX = 5.0


_MEMORY_PARTS = 16
"""What is free is told to such a part of all: what a host announces changes seldom, and each change is a write."""


def free_memory_bytes() -> int:
    """The memory of this host that a new process may have, to a sixteenth of all."""
    known = psutil.virtual_memory()
    part = max(1, known.total // _MEMORY_PARTS)
    return int(known.available // part * part)


class MainThread:
    """Does what others ask for, one thing after the other, in the thread that calls :meth:`do_next`."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()

    def call(self, act: Callable[[], Any]) -> Any:
        """Have it done, and wait for the result."""
        future: Future[Any] = Future()
        self._calls.put((future, act))
        return future.result(ACT_TIMEOUT_S)

    def wake(self) -> None:
        """Have :meth:`do_next` return."""
        self._calls.put((Future(), lambda: None))

    def do_next(self, timeout_s: float) -> None:
        """Do what was asked for next; wait for it, but not for ever."""
        try:
            future, act = self._calls.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return
        try:
            future.set_result(act())
        except Exception as error:
            future.set_exception(error)


class Agent:
    """Serves the jobs that it has. Without any it ends, unless it stands for a whole host (:class:`HostAgent`)."""

    lives_on = False

    def __init__(self, jobs: Mapping[str, HostedJob]) -> None:
        self._jobs = dict(jobs)
        self._main = MainThread()
        self._ending = False

    def serve(
        self,
        listening: socket.socket,
        token: str | None,
        *,
        mounts: Mapping[str, Mount] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Answer until nobody supervises any more, or whoever does says that it is over; leaves no process behind."""
        server = AgentServer(listening, self.routes(), token, mounts=mounts, tls=tls)
        answering = threading.Thread(target=server.answer, name="agent-server", daemon=True)
        answering.start()
        try:
            while self._jobs or (self.lives_on and not self._ending):
                self._do_next(self._tend())
        finally:
            for job in self._jobs.values():
                job.end_at_once()
            server.end()
            answering.join(_ANSWERING_S)

    def stop(self) -> None:
        """Let the replicas finish and end (a signal)."""
        self._ending = True
        self._main.wake()

    def _tend(self) -> float:
        """Look after all jobs; after how long to look again."""
        if self._ending:
            for job in self._jobs.values():
                job.end()
        again_s = min([_LOOK_S_MAX, *(job.tend() for job in self._jobs.values())])
        for name in [name for name, job in self._jobs.items() if job.over]:
            print(f'nothing of job "{name}" is left here', file=sys.stderr, flush=True)
            del self._jobs[name]
            again_s = 0.0
        return again_s

    def _do_next(self, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        self._main.do_next(timeout_s)
        if (late_s := time.monotonic() - until_s) > _SLEPT_S:
            for job in self._jobs.values():
                job.slept(late_s)

    def routes(self) -> list[Route]:
        """What can be asked of this agent."""
        one = "/jobs/{job}/processes/{handle}"
        return [
            Route("GET", "/agent", lambda _: self.about()),
            Route("GET", "/jobs/{job}", self._state),
            Route("GET", "/jobs/{job}/processes", self.commanded(_processes)),
            Route("PUT", one, self.commanded(_start)),
            Route("POST", f"{one}/become", self.commanded(_become)),
            Route("GET", f"{one}/cpu", self.commanded(lambda job, r: {"cpu_s": job.cpu_s(r.parameters["handle"])})),
            Route("POST", f"{one}/drain", self.commanded(lambda job, r: job.drain(r.parameters["handle"]))),
            Route("POST", f"{one}/kill", self.commanded(lambda job, r: job.kill(r.parameters["handle"]))),
            Route("POST", f"{one}/full-speed", self.commanded(lambda job, r: job.full_speed(r.parameters["handle"]))),
            Route("POST", "/jobs/{job}/end", self.commanded(lambda job, _: job.end_at_once())),
        ]

    def commanded(
        self, act: Callable[[HostedJob, Request], Mapping[str, Any] | None]
    ) -> Callable[[Request], Mapping[str, Any]]:
        """Done in the main thread, for whoever may command this job."""

        def admitted(request: Request) -> Mapping[str, Any]:
            job = self._job(request)
            job.admit(request.term)
            return act(job, request) or {}

        return lambda request: self.in_main_thread(partial(admitted, request))

    def in_main_thread(self, act: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Done by the thread that has all processes."""
        done: Mapping[str, Any] = self._main.call(act)
        return done

    def about(self) -> Mapping[str, Any]:
        """What this agent says of itself and its host."""
        from lockstep.runtime.spark.environment import environment_hash

        return {
            "host": platform.node(),
            "pid": os.getpid(),
            "cores": os.cpu_count() or 1,
            "memory_bytes": psutil.virtual_memory().total,
            "jobs": sorted(self._jobs),
            "version": __version__,
            "python": platform.python_version(),
            "environment": environment_hash(),
        }

    def _state(self, request: Request) -> Mapping[str, Any]:
        """For those who do not command: whether it will still be here in a moment."""
        return {"ending": self._job(request).ending}

    def _job(self, request: Request) -> HostedJob:
        name = request.parameters["job"]
        if name not in self._jobs:
            raise LookupError(f"this agent has no job {name}")
        return self._jobs[name]


def _processes(job: HostedJob, request: Request) -> Mapping[str, Any]:
    del request
    processes = [as_json(one) for one in job.listed()]
    return {"processes": processes, "memory_free_bytes": int(psutil.virtual_memory().available)}


def _start(job: HostedJob, request: Request) -> Mapping[str, Any]:
    body, handle = request.body, request.parameters["handle"]
    spec = ReplicaSpec(**body["spec"])
    return as_json(job.start(handle, spec, body["shape"], spare=bool(body["spare"]), gently=bool(body["gently"])))


def _become(job: HostedJob, request: Request) -> Mapping[str, Any]:
    spec = ReplicaSpec(**request.body["spec"])
    return {"heard": job.become(request.parameters["handle"], spec, gently=bool(request.body["gently"]))}
