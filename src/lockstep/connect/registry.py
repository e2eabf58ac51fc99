"""From a spec to its working side: the one place that knows which class does the work of which kind.

A new kind of source or sink is a spec in :mod:`lockstep.connect.specs`, a file under ``sources/`` or ``sinks/``, and
a line in the table here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from lockstep.connect.protocols import Place, SinkSide, SourceSide
from lockstep.connect.specs import spec_from_json
from lockstep.errors import ConnectError
from lockstep.plan.specs import Guarantee, SinkSpec, SourceSpec

SOURCES = {
    "journal": "journal:JournalSide",
    "files": "files:FilesSide",
    "rate": "rate:RateSide",
    "collection": "collection:CollectionSide",
    "kafka": "kafka:KafkaSide",
    "stage": "stage:StageSide",
    "stage-topic": "stage_topic:StageTopicSide",
}
SINKS = {
    "files": "files:FilesSinkSide",
    "sqlite": "sqlite:SqliteSinkSide",
    "postgres": "postgres:PostgresSinkSide",
    "delta": "delta:DeltaSinkSide",
    "console": "console:ConsoleSinkSide",
    "kafka": "kafka:KafkaSinkSide",
    "stage": "stage:StageSinkSide",
    "stage-topic": "stage_topic:StageTopicSinkSide",
}
"""Kind -> module and class, loaded when one is made: each of Spark's processes that reads a source pays for imports.

``stage-topic`` is ``stage`` where the place has journals in topics: the plan does not say where they are.
"""


def source_side(spec: SourceSpec | Mapping[str, Any], place: Place, source: str) -> SourceSide:
    """The working side of the source called ``source``; ``spec`` may be its JSON with a "kind" in it."""
    known = _spec(spec)
    if not isinstance(known, SourceSpec) or known.kind not in SOURCES:
        raise ConnectError("LS0501", f"{_named(known)} cannot be read from", why=f"sources are: {', '.join(SOURCES)}.")
    made: SourceSide = _loaded("sources", SOURCES[_kind(known.kind, place)])(known, place, source)
    return made


def sink_side(
    spec: SinkSpec | Mapping[str, Any], sink_id: str, place: Place, guarantee: Guarantee | None = None
) -> SinkSide:
    """The working side of the sink ``sink_id``; ``spec`` may be its JSON with a "kind" in it.

    ``guarantee`` is what the job gives there (:attr:`lockstep.plan.steps.Sink.given`), None for what the sink can do.
    """
    known = _spec(spec)
    if not isinstance(known, SinkSpec) or known.kind not in SINKS:
        raise ConnectError("LS0501", f"{_named(known)} cannot be written to", why=f"sinks are: {', '.join(SINKS)}.")
    side: SinkSide = _loaded("sinks", SINKS[_kind(known.kind, place)])(known, sink_id, place)
    if guarantee != "at-most-once":
        return side
    at_most_once: SinkSide = _loaded("sinks", "at_most_once:AtMostOnceSide")(side, sink_id, place)
    return at_most_once


def stage_trimmer(name: str, place: Place) -> SourceSide:
    """What forgets records of a journal inside a job."""
    known = "stage_topic:StageTopicTrimmer" if place.journals else "stage:StageTrimmer"
    made: SourceSide = _loaded("sources", known)(name, place)
    return made


def _kind(kind: str, place: Place) -> str:
    return "stage-topic" if kind == "stage" and place.journals else kind


def _loaded(package: str, path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"lockstep.connect.{package}.{module}"), name)


def _spec(spec: object) -> object:
    return spec_from_json(str(spec["kind"]), spec) if isinstance(spec, Mapping) else spec


def _named(spec: object) -> str:
    return spec.describe() if isinstance(spec, SourceSpec | SinkSpec) else repr(spec)
