"""A job of this process as a job file that holds the job itself: what ``lockstep.api.by_value`` reads.

Functions and classes of the user travel whole, with what they refer to; what is installed is imported there.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from pyspark import cloudpickle
from pyspark.cloudpickle.cloudpickle import list_registry_pickle_by_value

from lockstep.api.job import Job
from lockstep.api.loading import is_user_module
from lockstep.errors import PlanError

_WIDTH = 120
_FILE = '''\
"""Job {name}, as it was in the Python that started it. Made by Lockstep, not for editing (decision 43)."""

from lockstep.api.by_value import job_of

job = job_of("""
{text}
""")
'''


def job_file(job: Job) -> str:
    """The text of the file. LS0137 if something of the job cannot leave this process."""
    with _whole(_user_modules()):
        try:
            packed = cloudpickle.dumps(job)
        except Exception as error:  # whatever a user's object raises when it is packed
            raise _stays_here(job, error) from error
    text = base64.b64encode(packed).decode("ascii")
    lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return _FILE.format(name=job.name, text="\n".join(lines))


def _user_modules() -> list[ModuleType]:
    """Modules that only this process can be sure to import: they lie beside a script, a notebook or a test."""
    return [one for name, one in list(sys.modules.items()) if name != "__main__" and is_user_module(one)]


@contextmanager
def _whole(modules: list[ModuleType]) -> Iterator[None]:
    """In here functions and classes of these modules are packed whole, not by the name of their module."""
    before = list_registry_pickle_by_value()
    added = [one for one in modules if one.__name__ not in before and sys.modules.get(one.__name__) is one]
    for one in added:
        cloudpickle.register_pickle_by_value(one)
    try:
        yield
    finally:
        for one in added:
            cloudpickle.unregister_pickle_by_value(one)


def _stays_here(job: Job, error: Exception) -> PlanError:
    where = f'step "{step}"' if (step := _culprit(job)) else f'job "{job.name}"'
    return PlanError(
        "LS0137",
        f"{where} holds something that cannot leave this process",
        why=f"replicas are processes of their own, and {type(error).__name__}: {error}.",
        hint="make it inside the function that uses it (a connection, a lock, an open file), or pass plain values.",
    )


def _culprit(job: Job) -> str:
    """The first step that cannot be packed: all before it can."""
    for step in job.graph().steps:
        try:
            cloudpickle.dumps(step)
        except Exception:  # the error that is told is the first one
            return step.id
    return ""
