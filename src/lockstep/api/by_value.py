"""A job that was made in a running Python (a script, a notebook, a test), as its processes load it.

It comes to them as a job file like any other, which holds the job itself instead of the code that makes it: the code
around a job in a script does more than describe it, and a cell has no file (docs/decisions/0043-as-a-library.md).
"""

from __future__ import annotations

import base64
import pickle
import sys

from lockstep.api.job import Job
from lockstep.errors import PlanError
from lockstep.plan.steps import create_after


def job_of(text: str) -> Job:
    """The job in a file that ``lockstep.library.code`` wrote."""
    try:
        job = pickle.loads(base64.b64decode(text))  # noqa: S301 - as trusted as the code of any job file
    except (ImportError, AttributeError) as error:
        raise PlanError(
            "LS0137",
            "a part of the job cannot be found by the process that runs it",
            why=f"{type(error).__name__}: {error} (Python {sys.version.split()[0]}, {sys.executable}).",
            hint="install what the job's functions import into this environment, or import it inside of them.",
        ) from error
    assert isinstance(job, Job), "the file holds a job"
    # What is cut and compiled here comes after what the user has made, as it does where a file is executed.
    create_after(max((step.order for step in job.graph().steps), default=0))
    return job
