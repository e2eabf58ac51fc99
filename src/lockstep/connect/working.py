"""From a spec to its working side: the one place that knows which class does the work of which kind.

A new kind of source or sink is a spec in :mod:`lockstep.connect.specs`, a file under ``sources/`` or ``sinks/``, and
a line in the table here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lockstep.connect.protocols import Place, SinkSide, SourceSide
from lockstep.connect.sinks.at_most_once import AtMostOnceSide
from lockstep.connect.sinks.console import ConsoleSinkSide
from lockstep.connect.sinks.files import FilesSinkSide
from lockstep.connect.sinks.sqlite import SqliteSinkSide
from lockstep.connect.sinks.stage import StageSinkSide
from lockstep.connect.sources.collection import CollectionSide
from lockstep.connect.sources.files import FilesSide
from lockstep.connect.sources.journal import JournalSide
from lockstep.connect.sources.rate import RateSide
from lockstep.connect.sources.stage import StageSide
from lockstep.connect.specs import spec_from_json
from lockstep.errors import ConnectError
from lockstep.plan.specs import Guarantee, SinkSpec, SourceSpec

SOURCES: dict[str, Callable[[Any, Place, str], SourceSide]] = {
    "journal": JournalSide,
    "files": FilesSide,
    "rate": RateSide,
    "collection": CollectionSide,
    "stage": StageSide,
}
SINKS: dict[str, Callable[[Any, str, Place], SinkSide]] = {
    "files": FilesSinkSide,
    "sqlite": SqliteSinkSide,
    "console": ConsoleSinkSide,
    "stage": StageSinkSide,
}


def source_side(spec: SourceSpec | Mapping[str, Any], place: Place, source: str) -> SourceSide:
    """The working side of the source called ``source``; ``spec`` may be its JSON with a "kind" in it."""
    known = _spec(spec)
    if not isinstance(known, SourceSpec) or known.kind not in SOURCES:
        raise ConnectError("LS0501", f"{_named(known)} cannot be read from", why=f"sources are: {', '.join(SOURCES)}.")
    return SOURCES[known.kind](known, place, source)


def sink_side(
    spec: SinkSpec | Mapping[str, Any], sink_id: str, place: Place, guarantee: Guarantee | None = None
) -> SinkSide:
    """The working side of the sink ``sink_id``; ``spec`` may be its JSON with a "kind" in it.

    ``guarantee`` is what the job gives there (:attr:`lockstep.plan.steps.Sink.given`), None for what the sink can do.
    """
    known = _spec(spec)
    if not isinstance(known, SinkSpec) or known.kind not in SINKS:
        raise ConnectError("LS0501", f"{_named(known)} cannot be written to", why=f"sinks are: {', '.join(SINKS)}.")
    side = SINKS[known.kind](known, sink_id, place)
    return AtMostOnceSide(side, sink_id, place) if guarantee == "at-most-once" else side


def _spec(spec: object) -> object:
    return spec_from_json(str(spec["kind"]), spec) if isinstance(spec, Mapping) else spec


def _named(spec: object) -> str:
    return spec.describe() if isinstance(spec, SourceSpec | SinkSpec) else repr(spec)
