"""``python -m lockstep.control.start.ordering RESULT``: order a run of a job whose code somebody has sent.

A process of its own: the job's file is code, and the service that was sent it must not run it inside itself. What is to
be ordered comes as JSON on standard input: {"job_file", "project", "run", "spark", "savepoint"}, or with "upgrade" what
a job that runs is to become. What came of it is written to the file RESULT, since the job's code may print: {"job"},
with the number of the "operation" for an upgrade, or {"error"} as errors travel.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.api.loading import LoadedJob, load_job
from lockstep.config import STORE_FOLDER, load_settings
from lockstep.connect.tables import look_in
from lockstep.control.operations.upgrading import upgrade_code
from lockstep.control.operations.verbs import Manner
from lockstep.control.start.run import order_run
from lockstep.errors import LockstepError
from lockstep.store.opening import absolute, open_store


def main() -> int:
    """Order it, and write down what came of that."""
    order, result = json.load(sys.stdin), Path(sys.argv[1])
    project = Path(order["project"])
    try:
        look_in(project)
        loaded = load_job(order["job_file"])
        if "upgrade" in order:
            said = {"job": loaded.job.name, "operation": str(_upgraded(loaded, project, order["upgrade"]))}
        else:
            savepoint = order["savepoint"] or None
            said = {"job": order_run(loaded, project, order["run"], order["spark"], savepoint=savepoint)}
    except LockstepError as error:
        said = {"error": error.to_wire()}
    result.write_text(json.dumps(said), encoding="utf-8")
    return 0


def _upgraded(loaded: LoadedJob, project: Path, asked: Mapping[str, Any]) -> int:
    """Ask for an upgrade to this code; the number of the operation."""
    settings = load_settings(project)
    store = open_store(absolute(settings.store, project), asked["job"])
    try:
        manner = Manner(asked["asked_by"], asked["key"], asked["timeout_s"], asked["at_deadline"])
        home, same = project / STORE_FOLDER, bool(asked["same_results"])
        return upgrade_code(store, asked["job"], loaded, home, same_results=same, keep_s=asked["keep_s"], manner=manner)
    finally:
        store.close()


if __name__ == "__main__":
    sys.exit(main())
