"""What a person did wrong, in the form that `lockstep` has for its own errors; the codes have no page there."""

from __future__ import annotations

from lockstep.errors import LockstepError


class BenchmarkError(LockstepError):
    """BM01: there is no engine, workload or measure of that name. BM02: an engine could not be installed."""

    area = "BM"
