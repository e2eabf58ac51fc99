"""``python -m lockstep.control.coordinator.candidate ORDER PROJECT IDENTITY``: coordinate a job if nobody does.

Started by the host's agent. It has loaded everything before it is needed: the job goes on by itself meanwhile, but
nobody replaces a replica that dies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lockstep.api.loading import load_job
from lockstep.config import STORE_FOLDER
from lockstep.connect.tables import copies_in, look_in
from lockstep.control.coordinator.claiming import claim_when_free
from lockstep.control.start.run import coordinated, run_job
from lockstep.credentials import RedactedStream
from lockstep.errors import LockstepError, StoreError
from lockstep.runtime.desired_run import DesiredRun, wanted_run
from lockstep.store.home import job_folder
from lockstep.store.opening import open_store
from lockstep.store.protocols import Store

EXIT_OVER = 0
EXIT_AGAIN = 1
"""Replaced, or in trouble: the agent starts another one after a pause."""


def main() -> int:
    """Wait, coordinate, and say how it ended."""
    order = DesiredRun(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    project, identity = Path(sys.argv[2]), sys.argv[3]
    sys.stderr = RedactedStream(sys.stderr)
    store = open_store(order.store, order.job)
    try:
        return _coordinate(order, store, project, identity)
    except LockstepError as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_OVER if not _is_wanted(store) else EXIT_AGAIN
    finally:
        store.close()


def _coordinate(order: DesiredRun, store: Store, project: Path, identity: str) -> int:
    folder = job_folder(project / STORE_FOLDER, order.job)
    look_in(project, copies_in(store, folder / "tables"))
    # Loaded before it is needed, and again only if the job's code has changed meanwhile.
    graph = load_job(str(folder / order.job_file)).job.graph()
    print(f"waiting to coordinate {order.job} as {identity}", file=sys.stderr, flush=True)
    claim = claim_when_free(store, identity, lambda: _is_wanted(store))
    if claim is None:
        return EXIT_OVER
    newest = wanted_run(store)
    if newest is None:
        claim.give_back()
        return EXIT_OVER
    print(f"coordinating {order.job}, term {claim.term}", file=sys.stderr, flush=True)
    store.add_event("coordinator", f"{identity} coordinates from now on")
    try:
        with claim.renewed():
            if newest.job_file != order.job_file:
                graph = load_job(str(folder / newest.job_file)).job.graph()
            prepared = coordinated(graph, newest, project, claim, on_hosts=True, is_first=False)
    except BaseException:
        claim.give_back()
        raise
    run_job(prepared, lambda: None)
    return EXIT_OVER


def _is_wanted(store: Store) -> bool:
    """Whether the job is still to run, in whatever shape; taken to be so while nobody can tell."""
    try:
        return wanted_run(store) is not None
    except StoreError:
        return True


if __name__ == "__main__":
    sys.exit(main())
