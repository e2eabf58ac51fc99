"""Stream processing on Apache Spark that does not blink when a machine dies.

Names are imported when they are first used, so that ``import lockstep`` costs next to nothing.

>>> import lockstep as ls
>>> job = ls.Job("failed-logins")
>>> logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))
>>> failed = logins.filter(~ls.F.col("ok")).key_by("user").agg(failures=ls.F.count("*"))
>>> failed.columns
('user', 'failures')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.api.functions import F as F
    from lockstep.api.job import Job as Job
    from lockstep.api.keyed import KeyedStream as KeyedStream
    from lockstep.api.stream import Stream as Stream
    from lockstep.api.topology.topology import Topology as Topology
    from lockstep.api.topology.topology import program as program
    from lockstep.api.triggers import at_watermark as at_watermark
    from lockstep.api.triggers import early as early
    from lockstep.api.triggers import every as every
    from lockstep.api.triggers import late as late
    from lockstep.api.triggers import on_count as on_count
    from lockstep.api.windowed import WindowedStream as WindowedStream
    from lockstep.api.windows import count as count
    from lockstep.api.windows import global_ as global_
    from lockstep.api.windows import session as session
    from lockstep.api.windows import sliding as sliding
    from lockstep.api.windows import tumbling as tumbling
    from lockstep.connect.kafka.specs import kafka as kafka
    from lockstep.connect.reading import read as read
    from lockstep.connect.specs import collection as collection
    from lockstep.connect.specs import console as console
    from lockstep.connect.specs import delta as delta
    from lockstep.connect.specs import files as files
    from lockstep.connect.specs import journal as journal
    from lockstep.connect.specs import postgres as postgres
    from lockstep.connect.specs import rate as rate
    from lockstep.connect.specs import sqlite as sqlite
    from lockstep.connect.tables import table as table
    from lockstep.connect.writing import Acknowledged as Acknowledged
    from lockstep.connect.writing import Journal as Journal
    from lockstep.errors import LockstepError as LockstepError
    from lockstep.keyed.bolts import Bolt as Bolt
    from lockstep.keyed.process import Process as Process
    from lockstep.keyed.states import broadcast_map as broadcast_map
    from lockstep.keyed.states import broadcast_state as broadcast_state
    from lockstep.keyed.states import list_state as list_state
    from lockstep.keyed.states import map_state as map_state
    from lockstep.keyed.states import reducing_state as reducing_state
    from lockstep.keyed.states import value_state as value_state
    from lockstep.keyed.windows.custom import WindowAggregator as WindowAggregator
    from lockstep.keyed.windows.custom import WindowAssigner as WindowAssigner
    from lockstep.keyed.windows.custom import WindowFunction as WindowFunction
    from lockstep.library.rows import SinkRows as SinkRows
    from lockstep.library.running import RunningJob as RunningJob
    from lockstep.library.view import JobResult as JobResult
    from lockstep.plan.expression import epoch_time as epoch_time
    from lockstep.serve.client import Client as Client

__version__ = "0.1.0"

_HOMES = {
    "Job": "api.job",
    "Topology": "api.topology.topology",
    "Bolt": "keyed.bolts",
    "program": "api.topology.topology",
    "F": "api.functions",
    "Stream": "api.stream",
    "KeyedStream": "api.stream",
    "WindowedStream": "api.stream",
    "tumbling": "api.windows",
    "sliding": "api.windows",
    "session": "api.windows",
    "global_": "api.windows",
    "count": "api.windows",
    "WindowAssigner": "keyed.windows.custom",
    "WindowFunction": "keyed.windows.custom",
    "WindowAggregator": "keyed.windows.custom",
    "at_watermark": "api.triggers",
    "every": "api.triggers",
    "on_count": "api.triggers",
    "early": "api.triggers",
    "late": "api.triggers",
    "epoch_time": "plan.expression",
    "LockstepError": "errors",
    "Client": "serve.client",
    "RunningJob": "library.running",
    "JobResult": "library.view",
    "SinkRows": "library.rows",
    "Process": "keyed.process",
    "broadcast_map": "keyed.states",
    "broadcast_state": "keyed.states",
    "list_state": "keyed.states",
    "map_state": "keyed.states",
    "reducing_state": "keyed.states",
    "value_state": "keyed.states",
    "Journal": "connect.writing",
    "Acknowledged": "connect.writing",
    "journal": "connect.specs",
    "files": "connect.specs",
    "rate": "connect.specs",
    "collection": "connect.specs",
    "kafka": "connect.kafka.specs",
    "sqlite": "connect.specs",
    "postgres": "connect.specs",
    "delta": "connect.specs",
    "console": "connect.specs",
    "table": "connect.tables",
    "read": "connect.reading",
}

__all__ = [  # noqa: PLE0604  (the names are those of the table)
    *_HOMES,
    "__version__",
]


if not TYPE_CHECKING:  # whoever checks types has the imports above: a misspelt name is an error there

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'lockstep' has no attribute {name!r}; it has: {', '.join(_HOMES)}")
        found = getattr(import_module(f"lockstep.{home}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
