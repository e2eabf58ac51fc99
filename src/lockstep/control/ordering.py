"""``python -m lockstep.control.ordering RESULT``: order a run of a job whose code somebody has sent.

A process of its own: the job's file is code, and the service that was sent it must not run it inside itself. What is to
be ordered comes as JSON on standard input: {"job_file", "project", "run", "spark"}. What came of it is written to the
file RESULT, since the job's code may print: {"job"}, or {"error"} as errors travel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lockstep.api.loading import load_job
from lockstep.connect.tables import look_in
from lockstep.control.run import order_run
from lockstep.errors import LockstepError


def main() -> int:
    """Order it, and write down what came of that."""
    order, result = json.load(sys.stdin), Path(sys.argv[1])
    project = Path(order["project"])
    try:
        look_in(project)
        loaded = load_job(order["job_file"])
        said = {"job": order_run(loaded, project, order["run"], order["spark"])}
    except LockstepError as error:
        said = {"error": error.to_wire()}
    result.write_text(json.dumps(said), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
