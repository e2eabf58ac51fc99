"""The types of what a user is handed or passes on: for annotations, and for editors.

Most programs need none of these names: ``import lockstep as ls`` has everything that is called. They are here for
functions and classes with annotations.

>>> import lockstep as ls
>>> from lockstep.typing import FiredTimer, NamedRecord, ProcessContext
>>> class Silence(ls.Process):
...     seen = ls.value_state(int)
...     def on_record(self, record: NamedRecord, ctx: ProcessContext) -> None:
...         self.seen.set(self.seen.get(0) + 1)
...         ctx.set_epoch_timer(after="10 minutes")
...     def on_timer(self, timer: FiredTimer, ctx: ProcessContext) -> None:
...         ctx.emit(user=ctx.key.user, seen=self.seen.get(0), at=timer.at)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.api.connected import BroadcastStream as BroadcastStream
    from lockstep.api.connected import ConnectedStream as ConnectedStream
    from lockstep.api.joins import CoGrouped as CoGrouped
    from lockstep.api.joins import CoGroupedWindow as CoGroupedWindow
    from lockstep.api.splitting import Branches as Branches
    from lockstep.api.topology.declarations import BoltDeclarer as BoltDeclarer
    from lockstep.connect.kafka.specs import KafkaSink as KafkaSink
    from lockstep.connect.kafka.specs import KafkaSource as KafkaSource
    from lockstep.connect.specs import CollectionSource as CollectionSource
    from lockstep.connect.specs import ConsoleSink as ConsoleSink
    from lockstep.connect.specs import DeltaSink as DeltaSink
    from lockstep.connect.specs import FilesSink as FilesSink
    from lockstep.connect.specs import FilesSource as FilesSource
    from lockstep.connect.specs import JournalSource as JournalSource
    from lockstep.connect.specs import PostgresSink as PostgresSink
    from lockstep.connect.specs import RateSource as RateSource
    from lockstep.connect.specs import SqliteSink as SqliteSink
    from lockstep.connect.tables import Table as Table
    from lockstep.durations import Duration as Duration
    from lockstep.keyed.bolts import BoltContext as BoltContext
    from lockstep.keyed.bolts import BoltState as BoltState
    from lockstep.keyed.bolts import BoltTuple as BoltTuple
    from lockstep.keyed.bolts import Collector as Collector
    from lockstep.keyed.bolts import TupleWindow as TupleWindow
    from lockstep.keyed.named_records import NamedKey as NamedKey
    from lockstep.keyed.named_records import NamedRecord as NamedRecord
    from lockstep.keyed.process import FiredTimer as FiredTimer
    from lockstep.keyed.process import ProcessContext as ProcessContext
    from lockstep.keyed.programs import Program as Program
    from lockstep.keyed.records import Record as Record
    from lockstep.keyed.states import ListHandle as ListHandle
    from lockstep.keyed.states import ListState as ListState
    from lockstep.keyed.states import MapHandle as MapHandle
    from lockstep.keyed.states import MapState as MapState
    from lockstep.keyed.states import ReducingHandle as ReducingHandle
    from lockstep.keyed.states import ReducingState as ReducingState
    from lockstep.keyed.states import State as State
    from lockstep.keyed.states import ValueHandle as ValueHandle
    from lockstep.keyed.states import ValueState as ValueState
    from lockstep.keyed.windows.panes import Pane as Pane
    from lockstep.plan.columns import Condition as Condition
    from lockstep.plan.columns import RecordColumns as RecordColumns
    from lockstep.plan.expression import Expression as Expression
    from lockstep.plan.graph import Graph as Graph
    from lockstep.plan.schema import Field as Field
    from lockstep.plan.schema import Schema as Schema
    from lockstep.plan.specs import SinkSpec as SinkSpec
    from lockstep.plan.specs import SourceSpec as SourceSpec
    from lockstep.plan.specs import TableSpec as TableSpec
    from lockstep.plan.triggers import Firing as Firing
    from lockstep.plan.triggers import Trigger as Trigger
    from lockstep.plan.windows import Count as Count
    from lockstep.plan.windows import Custom as Custom
    from lockstep.plan.windows import GlobalWindow as GlobalWindow
    from lockstep.plan.windows import Session as Session
    from lockstep.plan.windows import Sliding as Sliding
    from lockstep.plan.windows import Tumbling as Tumbling
    from lockstep.serve import models as models
    from lockstep.store.protocols import Entry as Entry
    from lockstep.store.python_records import ArrowStream as ArrowStream
    from lockstep.testing.inputs import Clock as Clock
    from lockstep.testing.inputs import Happening as Happening
    from lockstep.testing.replica import ReplicaHere as ReplicaHere

_HOMES = {
    "ArrowStream": "store.python_records",
    "BoltContext": "keyed.bolts",
    "BoltDeclarer": "api.topology.declarations",
    "BoltState": "keyed.bolts",
    "BoltTuple": "keyed.bolts",
    "Branches": "api.splitting",
    "BroadcastStream": "api.connected",
    "Clock": "testing.inputs",
    "CoGrouped": "api.joins",
    "CoGroupedWindow": "api.joins",
    "CollectionSource": "connect.specs",
    "Collector": "keyed.bolts",
    "Condition": "plan.columns",
    "ConnectedStream": "api.connected",
    "ConsoleSink": "connect.specs",
    "Count": "plan.windows",
    "Custom": "plan.windows",
    "DeltaSink": "connect.specs",
    "Duration": "durations",
    "Entry": "store.protocols",
    "Expression": "plan.expression",
    "Field": "plan.schema",
    "FilesSink": "connect.specs",
    "FilesSource": "connect.specs",
    "FiredTimer": "keyed.process",
    "Firing": "plan.triggers",
    "GlobalWindow": "plan.windows",
    "Graph": "plan.graph",
    "Happening": "testing.inputs",
    "JournalSource": "connect.specs",
    "KafkaSink": "connect.kafka.specs",
    "KafkaSource": "connect.kafka.specs",
    "ListHandle": "keyed.states",
    "ListState": "keyed.states",
    "MapHandle": "keyed.states",
    "MapState": "keyed.states",
    "NamedKey": "keyed.named_records",
    "NamedRecord": "keyed.named_records",
    "Pane": "keyed.windows.panes",
    "PostgresSink": "connect.specs",
    "ProcessContext": "keyed.process",
    "Program": "keyed.programs",
    "RateSource": "connect.specs",
    "Record": "keyed.records",
    "RecordColumns": "plan.columns",
    "ReducingHandle": "keyed.states",
    "ReducingState": "keyed.states",
    "ReplicaHere": "testing.replica",
    "Schema": "plan.schema",
    "Session": "plan.windows",
    "SinkSpec": "plan.specs",
    "Sliding": "plan.windows",
    "SourceSpec": "plan.specs",
    "SqliteSink": "connect.specs",
    "State": "keyed.states",
    "Table": "connect.tables",
    "TableSpec": "plan.specs",
    "Trigger": "plan.triggers",
    "Tumbling": "plan.windows",
    "TupleWindow": "keyed.bolts",
    "ValueHandle": "keyed.states",
    "ValueState": "keyed.states",
    "models": "serve.models",
}

__all__ = [*_HOMES]  # noqa: PLE0604  (the names are those of the table)


if not TYPE_CHECKING:  # whoever checks types has the imports above: a misspelt name is an error there

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'lockstep.typing' has no attribute {name!r}; it has: {', '.join(_HOMES)}")
        module = import_module(f"lockstep.{home}")
        # What a client is answered is a module of its own, as a whole: its names (Plan, Stage) need it before them.
        found = module if home == f"serve.{name}" else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
