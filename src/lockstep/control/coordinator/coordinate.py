"""``python -m lockstep.control.coordinator.coordinate JOB PROJECT``: coordinate a wanted job, without a terminal.

What `lockstep run` does, for a job that was ordered before: started by `lockstep serve`, and not ended with it. The
replicas of a coordinator that died are adopted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lockstep.api.loading import load_job
from lockstep.config import STORE_FOLDER, load_settings
from lockstep.connect.tables import copies_in, look_in
from lockstep.control.start.run import claim_job, coordinated, run_job
from lockstep.credentials import RedactedStream
from lockstep.errors import LockstepError, StoreError
from lockstep.runtime.desired_run import note_stopped, wanted_run
from lockstep.store.home import job_folder
from lockstep.store.opening import absolute, open_store
from lockstep.store.protocols import Store

ALREADY_RUNS = "LS0610"


def main() -> int:
    """Coordinate until the job is stopped; exit code 0 if there is nothing more to do."""
    job, project = sys.argv[1], Path(sys.argv[2]).resolve()
    sys.stderr = RedactedStream(sys.stderr)
    address = absolute(load_settings(project).store, project)
    store = open_store(address, job)
    try:
        _coordinate(store, address, project, job)
    except StoreError as error:
        print(error, file=sys.stderr, flush=True)
        return 1  # whoever started this tries again
    except LockstepError as error:
        print(error, file=sys.stderr, flush=True)
        if error.code != ALREADY_RUNS:
            # What cannot run now cannot run in a second either: a person has to change something.
            store.add_event("coordinator-failed", f"{error.code} {error.fact}")
            note_stopped(store)
    finally:
        store.close()
    return 0


def _coordinate(store: Store, address: str, project: Path, job: str) -> None:
    claim = claim_job(store, address, project, job, replace=False)
    try:
        order = wanted_run(store)
        if order is None:
            claim.give_back()
            return
        folder = job_folder(project / STORE_FOLDER, job)
        with claim.renewed():
            look_in(project, copies_in(store, folder / "tables"))
            graph = load_job(str(folder / order.job_file)).job.graph()
            prepared = coordinated(graph, order, project, claim, on_hosts=False, is_first=False)
    except BaseException:
        claim.give_back()
        raise
    print(f"coordinating {job}, term {claim.term}", file=sys.stderr, flush=True)
    run_job(prepared, lambda: None)


if __name__ == "__main__":
    sys.exit(main())
