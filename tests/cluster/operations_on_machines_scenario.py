"""What `test_operations_on_machines.py` does with a job on three hosts, in a network of its own; answers in JSON."""

from __future__ import annotations

import _thread
import json
import subprocess
import sys
import threading
from pathlib import Path

from lockstep.bench.cluster import cluster
from lockstep.control.operations.model import Operation
from lockstep.control.operations.verbs import JobVerbs
from lockstep.runtime.desired_run import LEASE
from tests.cluster.machines_scenario import Scene

PARTITIONS = 2


class Operating:
    """Asks for operations as people do, and follows them in the store."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.verbs = JobVerbs(scene.run.store, "totals")

    def ask(self, *words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "lockstep", "--project", str(self.scene.folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.scene.there.environment)
        return done.returncode, done.stderr

    def newest(self) -> Operation:
        return self.verbs.book.all()[-1]

    def until_done(self, what: str) -> str:
        self.scene.until(what, lambda: not self.newest().is_open)
        one = self.newest()
        assert one.state == "done", f"{one.state}: {one.error}"
        return one.state

    def each_step_once(self) -> bool:
        """Whether no operation has a step that was begun twice."""
        steps = [[(step.name, step.text) for step in one.steps] for one in self.verbs.book.all()]
        return all(len(set(names)) == len(names) for names in steps)


def main(folder: Path) -> dict[str, object]:
    """Empty a host, kill the coordinator in the middle of a rescale, and look at every result."""
    project = folder / "project"
    project.mkdir()
    with cluster(folder) as there:
        scene = Scene(there, project)
        store, seen = scene.run.store, scene.seen
        scene.until("both replicas to run", scene.live_apart)
        scene.goes_on("published")
        operating = Operating(scene)
        free = next(host for host in there.agents if host not in {where[0] for where in scene.where().values()})
        left = scene.where()["r0"][0]
        code, said = operating.ask("move", "r0", "--to", free, "--job", "totals")
        assert code == 0, said
        seen["moved"] = operating.newest().state
        scene.until("both replicas to run", scene.live_apart)
        seen["lives where it was told"] = scene.where()["r0"][0] == free
        seen["the host is empty"] = left not in {where[0] for where in scene.where().values()}
        scene.goes_on("published after the move")
        code, said = operating.ask("rescale", "totals", "--partitions", str(PARTITIONS), "--no-wait")
        assert code == 0, said
        coordinator = store.holder(LEASE)
        scene.until("the rescale to be under way", lambda: len(operating.newest().steps) > 0)
        subprocess.run(["kill", "-9", str(scene.run.pid)], check=True)
        seen["another one coordinates after s"] = scene.until(
            "another coordinator", lambda: store.holder(LEASE) not in (None, coordinator)
        )
        scene.goes_on("published without the first coordinator")
        seen["rescaled"] = operating.until_done("the rescale to be done")
        scene.until("both replicas to run", scene.live_apart)
        scene.goes_on("published in the new shape")
        seen["each step once"] = operating.each_step_once()
        seen["stopped"] = operating.ask("stop", "totals")[0]
        rows = [(row["user"], row["n"]) for row in scene.broker.committed("totals")]
        seen["each once"] = len(set(rows)) == len(rows)
        seen["diverged"] = len(store.divergences())
    return seen


if __name__ == "__main__":
    watchdog = threading.Timer(1500, _thread.interrupt_main)
    watchdog.daemon = True
    watchdog.start()
    print(json.dumps(main(Path(sys.argv[1]))))
