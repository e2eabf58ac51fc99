"""How a replica's process ends for an error: what its supervisor then does follows from the exit code."""

from __future__ import annotations

from lockstep.errors import LockstepError
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_FAILED, EXIT_JOB_ERROR, EXIT_RETIRED

_JOB_ERRORS = ("LS01", "LS02", "LS03", "LS05")
"""Areas of errors that starting again cannot mend."""
_PASSING = ("LS0508", "LS0509", "LS0511", "LS0521", "LS0524", "LS0551")
"""But these can pass: a full disk, a disk that does not answer, a sink that somebody holds locked, a broker or a topic
that is not there, HDFS or S3 that does not answer."""


def exit_code(error: LockstepError) -> int:
    """How the process ends for this error."""
    if error.code == "LS0603":
        return EXIT_DIVERGED
    if error.code == "LS0534":
        # A sink has seen that it was replaced: that says nothing about the job.
        return EXIT_RETIRED
    if error.code in ("LS0604", "LS0605", "LS0606"):
        return EXIT_CHECKPOINT
    return EXIT_JOB_ERROR if is_job_error(error) else EXIT_FAILED


def is_job_error(error: LockstepError) -> bool:
    """Whether the job itself is wrong, so that starting again would only fail again."""
    return error.code in ("LS0418", "LS0422", "LS0425", "LS0613", "LS0690", "LS0692", "LS0693", "LS0694", "LS0704") or (
        error.code.startswith(_JOB_ERRORS) and error.code not in _PASSING
    )
