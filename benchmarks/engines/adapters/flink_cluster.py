"""A small cluster of Flink on this machine: a job manager, two task managers, and the job.

``python -m benchmarks.engines.adapters.flink_cluster FLINK_HOME PYTHON PROGRAM``, in the folder of a measurement.
Either
task manager has room for the whole job: if one dies, Flink restarts the job on the other, from its last checkpoint, and
the dead one is started again. Ends with its children on SIGTERM, or when whoever started it is gone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from lockstep.agent.processes import kill_tree
from lockstep.bench.stopping import Stop

WORK = Path("work")
TASK_MANAGERS = ("tm-0", "tm-1")
STATE_FILE = WORK / "cluster.json"
READY_FILE = WORK / "ready"
CHECKPOINTS = WORK / "checkpoints"
START_TIMEOUT_S = 90.0
_POLL_S = 0.025
_SHOW_INTERVAL_S = 0.3
_REST_TIMEOUT_S = 2.0


def settings(rpc_port: int, rest_port: int, python: str) -> dict[str, Any]:
    """How the cluster is tuned: loopback only, quick to notice a death, small steps, exactly-once."""
    bounded = _bounded()
    return {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.rpc.port": rpc_port,
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": rest_port,
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.host": "127.0.0.1",
        # Reading and what comes after a shuffle are threads of their own anyway, so two cores have work. A second
        # reader would take every other file, and what it reads later than the first would be dropped as late.
        "taskmanager.numberOfTaskSlots": 1,
        "parallelism.default": 1,
        "jobmanager.memory.process.size": "1g",
        "taskmanager.memory.process.size": "1600m",
        # By default a death is noticed after 50 s.
        "heartbeat.interval": "250 ms",
        "heartbeat.timeout": "1500 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 1000,
        "restart-strategy.fixed-delay.delay": "100 ms",
        # Output becomes visible with a checkpoint: that is what exactly-once costs in latency.
        "execution.checkpointing.interval": "1 s" if bounded else "500 ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": CHECKPOINTS.absolute().as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "state.backend.type": "hashmap",
        "pipeline.auto-watermark-interval": "50 ms",
        "execution.buffer-timeout.interval": "10 ms",
        "python.executable": python,
        "python.client.executable": python,
        # By default Python waits for a thousand records or a second.
        "python.fn-execution.bundle.time": "1000" if bounded else "10",
        "classloader.check-leaked-classloader": "false",
        "env.java.opts.all": " ".join(_JAVA_OPTIONS),
    }


def _bounded() -> bool:
    return os.environ.get("BENCH_BOUNDED") == "1"


_OPEN = ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent")
_JAVA_OPTIONS = (
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPEN),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
)
"""What Flink's own configuration opens on Java 17."""


class Cluster:
    """The processes of a cluster and the REST interface of its job manager."""

    def __init__(self, home: Path, python: str, stop: Stop) -> None:
        self._home = home
        self._python = python
        self._stop = stop
        self._rest_port = _free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = self._configured()

    def settings(self, rpc_port: int, rest_port: int, python: str) -> dict[str, Any]:
        """How it is configured."""
        return settings(rpc_port, rest_port, python)

    def _configured(self) -> dict[str, str]:
        conf = WORK / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        values = self.settings(_free_port(), self._rest_port, self._python)
        lines = (f"{key}: {json.dumps(value)}\n" for key, value in values.items())
        (conf / "config.yaml").write_text("".join(lines), encoding="utf-8")
        for path in (self._home / "conf").glob("log4j*.properties"):
            (conf / path.name).write_bytes(path.read_bytes())
        (WORK / "log").mkdir(exist_ok=True)
        own = {"FLINK_CONF_DIR": conf, "FLINK_LOG_DIR": WORK / "log", "FLINK_PID_DIR": WORK}
        return {
            **os.environ,
            **{name: str(path.absolute()) for name, path in own.items()},
            "FLINK_HOME": str(self._home),
            "BENCH_FOLDER": str(Path.cwd()),
        }

    def start(self, name: str) -> None:
        """Start the job manager or one of the task managers."""
        script, arguments = "jobmanager.sh", ["start-foreground"]
        if name in TASK_MANAGERS:
            script, arguments = "taskmanager.sh", ["start-foreground", f"-Dtaskmanager.resource-id={name}"]
        with (WORK / "log" / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                ["/bin/bash", str(self._home / "bin" / script), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def get(self, path: str) -> dict[str, Any]:
        """An answer of the job manager; empty while it does not answer."""
        return rest(self._rest_port, path)

    def submit(self, program: str) -> str:
        """Submit the job, to go on from the newest checkpoint if there is one; its id."""
        newest = max(CHECKPOINTS.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns, default=None)
        resumed = ["-s", newest.parent.absolute().as_uri()] if newest is not None else []
        command = [str(self._home / "bin" / "flink"), "run", "-d", *resumed, "-py", program]
        subprocess.run(["/bin/bash", *command], env=self._environment, check=True, stdin=subprocess.DEVNULL)
        return str(self.get("/jobs")["jobs"][0]["id"])

    def note(self, job: str) -> None:
        """Write down who is who, for the one who wants to kill a task manager."""
        pids = {name: process.pid for name, process in self._processes.items()}
        staged = STATE_FILE.with_suffix(".new")
        staged.write_text(json.dumps({"rest_port": self._rest_port, "job": job, "pids": pids}), encoding="utf-8")
        staged.replace(STATE_FILE)

    def dead(self) -> list[str]:
        """Those that have ended."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def wait(self, what: str, condition: Any) -> None:
        """Wait until something holds."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if self._stop.wait(_POLL_S) or time.monotonic() > deadline_s:
                raise SystemExit(f"gave up while {what}")

    def end(self) -> None:
        """End all processes at once: the folder is thrown away, or a new cluster starts from the checkpoint."""
        for process in self._processes.values():
            kill_tree(process.pid)
            process.wait()


class InOrder:
    """Shows the job all files that are there at once as one, in the order of their names.

    Flink's file source takes the files that wait for it in any order. Of many it would read the last before the first,
    and drop most records as late; within a file it keeps the order.
    """

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._next_s = 0.0
        for folder in Path("input").iterdir():
            shown = WORK / folder
            shown.mkdir(parents=True, exist_ok=True)
            # A cluster that was started again goes on where the one before it was.
            self._last[folder.name] = max((path.name for path in shown.iterdir()), default="")

    def show(self) -> None:
        """One file more of each source, if there is anything new."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _SHOW_INTERVAL_S
        for folder in Path("input").iterdir():
            last = self._last[folder.name]
            names = sorted(path.name for path in folder.iterdir() if path.name > last)
            if names:
                staged = WORK / f"{folder.name}.staged"
                with staged.open("wb") as joined:
                    for name in names:
                        joined.write((folder / name).read_bytes())
                staged.replace(WORK / folder / names[-1])
                self._last[folder.name] = names[-1]


def rest(port: int, path: str) -> dict[str, Any]:
    """Ask a job manager on this machine; empty if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=_REST_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, urllib.error.URLError, json.JSONDecodeError):
        return {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(cluster: Cluster, program: str, stop: Stop) -> None:
    """Start everything, then keep the task managers alive."""
    for name in ("jobmanager", *TASK_MANAGERS):
        cluster.start(name)
    cluster.wait("starting", lambda: cluster.get("/overview").get("taskmanagers") == len(TASK_MANAGERS))
    in_order = InOrder() if _bounded() else None
    job = cluster.submit(program)
    cluster.wait("starting the job", lambda: all_run(cluster.get(f"/jobs/{job}")))
    cluster.note(job)
    READY_FILE.touch()
    while not stop.wait(_POLL_S):
        if in_order is not None:
            in_order.show()
        for name in cluster.dead():
            cluster.start(name)
            cluster.note(job)


def all_run(job: dict[str, Any]) -> bool:
    """Whether all tasks of a job run."""
    vertices = job.get("vertices", [])
    return bool(vertices) and all(vertex["status"] in ("RUNNING", "FINISHED") for vertex in vertices)


def main() -> None:
    """The process."""
    home, python, program = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    stop = Stop().on_signals()
    cluster = Cluster(home, python, stop)
    try:
        run(cluster, program, stop)
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
