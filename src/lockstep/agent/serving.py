"""The agent's own life: it answers until nobody is left to answer to, lets its replicas finish, and ends."""

from __future__ import annotations

import os
import platform
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import psutil

from lockstep.agent.client import ACT_TIMEOUT_S
from lockstep.agent.description import Description
from lockstep.agent.hosting import HostedJob, as_json
from lockstep.agent.server import AgentServer, Request, Route
from lockstep.runtime.spec import ReplicaSpec

_DRAIN_LOOK_S = 0.1
_ANSWERING_S = 2.0
"""For the answer under way, before the process ends."""
_SLEPT_S = 5.0
"""Who wakes up so much later than it wanted to was stopped itself."""


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
    """Serves one job on one host."""

    def __init__(self, description: Description, job: HostedJob) -> None:
        self._description = description
        self._job = job
        self._main = MainThread()
        self._at_once = False

    def serve(self, listening: socket.socket) -> None:
        """Answer until nobody supervises any more, or whoever does says that it is over; leaves no process behind."""
        server = AgentServer(listening, self.routes(), self._description.token)
        answering = threading.Thread(target=server.answer, name="agent-server", daemon=True)
        answering.start()
        try:
            while not self._job.ending:
                self._do_next(self._job.tend())
            if not self._at_once:
                self._drain()
        finally:
            self._job.kill_all()
            server.end(self._description.socket)
            answering.join(_ANSWERING_S)
            self._description.remove()

    def stop(self) -> None:
        """Let the replicas finish and end (a signal)."""
        self._job.ending = True
        self._main.wake()

    def _do_next(self, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        self._main.do_next(timeout_s)
        if (late_s := time.monotonic() - until_s) > _SLEPT_S:
            self._job.slept(late_s)

    def _drain(self) -> None:
        print("nobody supervises this job any more: its replicas finish their epoch", file=sys.stderr, flush=True)
        self._job.drain_all()
        deadline_s = time.monotonic() + self._description.stop_timeout_s
        while not self._job.is_empty() and time.monotonic() < deadline_s:
            self._main.do_next(_DRAIN_LOOK_S)

    def routes(self) -> list[Route]:
        """What can be asked of this agent. Others add to it: what is served here to peers has routes of its own."""
        one = "/jobs/{job}/processes/{handle}"
        job = self._job
        return [
            Route("GET", "/agent", self._about),
            Route("GET", "/jobs/{job}", self._state),
            Route("GET", "/jobs/{job}/processes", self._asked(self._listed)),
            Route("PUT", one, self._asked(self._start)),
            Route("POST", f"{one}/become", self._asked(self._become)),
            Route("GET", f"{one}/cpu", self._asked(lambda r: {"cpu_s": job.cpu_s(r.parameters["handle"])})),
            Route("POST", f"{one}/drain", self._asked(_done(job.drain))),
            Route("POST", f"{one}/kill", self._asked(_done(job.kill))),
            Route("POST", f"{one}/full-speed", self._asked(_done(job.full_speed))),
            Route("POST", "/jobs/{job}/end", self._asked(self._end)),
        ]

    def _asked(self, act: Callable[[Request], Mapping[str, Any]]) -> Callable[[Request], Mapping[str, Any]]:
        """Done in the main thread, for whoever may command this job."""

        def admitted(request: Request) -> Mapping[str, Any]:
            self._refuse_others(request)
            self._job.admit(request.term)
            return act(request)

        def answer(request: Request) -> Mapping[str, Any]:
            done: Mapping[str, Any] = self._main.call(partial(admitted, request))
            return done

        return answer

    def _about(self, request: Request) -> Mapping[str, Any]:
        del request
        from lockstep.runtime.spark.environment import environment_hash

        return {
            "host": platform.node(),
            "pid": os.getpid(),
            "cores": os.cpu_count() or 1,
            "memory_bytes": psutil.virtual_memory().total,
            "jobs": [self._job.job],
            "version": self._description.version,
            "python": platform.python_version(),
            "environment": environment_hash(),
        }

    def _state(self, request: Request) -> Mapping[str, Any]:
        """For those who do not command: whether it will still be here in a moment."""
        self._refuse_others(request)
        return {"ending": self._job.ending}

    def _refuse_others(self, request: Request) -> None:
        if request.parameters["job"] != self._job.job:
            raise LookupError(f"this agent has no job {request.parameters['job']}")

    def _listed(self, request: Request) -> Mapping[str, Any]:
        del request
        processes = [as_json(one) for one in self._job.listed()]
        return {"processes": processes, "memory_free_bytes": int(psutil.virtual_memory().available)}

    def _start(self, request: Request) -> Mapping[str, Any]:
        body, handle = request.body, request.parameters["handle"]
        spec = ReplicaSpec(**body["spec"])
        return as_json(
            self._job.start(handle, spec, body["shape"], spare=bool(body["spare"]), gently=bool(body["gently"]))
        )

    def _become(self, request: Request) -> Mapping[str, Any]:
        spec = ReplicaSpec(**request.body["spec"])
        heard = self._job.become(request.parameters["handle"], spec, gently=bool(request.body["gently"]))
        return {"heard": heard}

    def _end(self, request: Request) -> Mapping[str, Any]:
        del request
        self._at_once = self._job.ending = True
        return {}


def _done(act: Callable[[str], None]) -> Callable[[Request], Mapping[str, Any]]:
    def answer(request: Request) -> Mapping[str, Any]:
        act(request.parameters["handle"])
        return {}

    return answer
