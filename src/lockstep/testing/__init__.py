"""Run whole jobs on in-memory input inside a test, with explicit epochs and a clock that the test moves.

Names are imported when they are first used: testing a process function needs no Spark.

The guide page ``docs/guide/testing.md`` shows how.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.keyed.tester import ProcessTester as ProcessTester
    from lockstep.testing.inputs import CRASH as CRASH
    from lockstep.testing.inputs import HEARTBEAT as HEARTBEAT
    from lockstep.testing.inputs import at as at
    from lockstep.testing.inputs import wait as wait
    from lockstep.testing.running import Result as Result
    from lockstep.testing.running import run as run
    from lockstep.testing.tables import Rows as Rows
    from lockstep.testing.tables import assert_same_rows as assert_same_rows
    from lockstep.testing.tables import rows as rows
    from lockstep.testing.trial import Trial as Trial

_HOMES = {
    "run": "testing.running",
    "Result": "testing.running",
    "CRASH": "testing.inputs",
    "HEARTBEAT": "testing.inputs",
    "at": "testing.inputs",
    "wait": "testing.inputs",
    "Rows": "testing.tables",
    "rows": "testing.tables",
    "assert_same_rows": "testing.tables",
    "Trial": "testing.trial",
    "ProcessTester": "keyed.tester",
}

__all__ = [*_HOMES]  # noqa: PLE0604  (the names are those of the table)


if not TYPE_CHECKING:  # whoever checks types has the imports above: a misspelt name is an error there

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'lockstep.testing' has no attribute {name!r}; it has: {', '.join(_HOMES)}")
        found = getattr(import_module(f"lockstep.{home}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
