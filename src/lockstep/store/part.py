"""What the parts of the SQLite store share: the job's database and the clock."""

from __future__ import annotations

from lockstep.clock import Clock
from lockstep.store.database import Database


class Part:
    """One protocol's worth of tables in a job's database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
