"""What the plan needs to know of a source and a sink: plain data that describes itself and opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from lockstep.plan.schema import Schema

Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]


@runtime_checkable
class SourceSpec(Protocol):
    """Where records come from."""

    @property
    def kind(self) -> str:
        """A word for it: journal, files, rate, collection."""

    @property
    def schema(self) -> Schema:
        """The records' fields."""

    def describe(self) -> str:
        """One line for people."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other source."""


@runtime_checkable
class SinkSpec(Protocol):
    """Where an output goes. One with a ``path`` in its JSON fills that place: no two sinks of a job may share it."""

    @property
    def kind(self) -> str:
        """A word for it: files, sqlite, console."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of which a newer row replaces an older one; none if rows are only added."""

    @property
    def deletes(self) -> bool:
        """Whether a row of a key can be taken back: then rows come with a last column that says so."""

    @property
    def guarantee(self) -> Guarantee:
        """What it can keep: "exactly-once" with a fence of its own, "at-least-once" if one learns afterwards that an
        epoch was written, "at-most-once" if one never learns it.
        """

    def describe(self) -> str:
        """One line for people."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other sink."""


@runtime_checkable
class TableSpec(Protocol):
    """A table that does not change while a job runs: the static side of a join."""

    @property
    def kind(self) -> str:
        """Always "table"."""

    @property
    def schema(self) -> Schema:
        """The table's columns."""

    def describe(self) -> str:
        """One line for people."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other table."""


@dataclass(frozen=True)
class StageSource:
    """Reads a journal inside a job: between two stages, or from a loop's end to its head."""

    name: str
    schema: Schema

    kind: ClassVar[str] = "stage"

    def describe(self) -> str:
        """One line for people."""
        return f"stage journal {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other one."""
        return {"name": self.name, "schema": self.schema.to_json()}


@dataclass(frozen=True)
class StageJournal:
    """Writes a journal inside a job; it lives in the job's own folder.

    ``rounds_max`` is for loops: records that went round more often are set aside.
    """

    name: str
    rounds_max: int | None = None

    kind: ClassVar[str] = "stage"
    key: ClassVar[tuple[str, ...]] = ()
    deletes: ClassVar[bool] = False
    guarantee: ClassVar[Guarantee] = "exactly-once"

    def describe(self) -> str:
        """One line for people."""
        return f"stage journal {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other one."""
        return {"name": self.name, "rounds_max": self.rounds_max}


def stage_spec(data: Mapping[str, Any]) -> StageSource | StageJournal:
    """What ``to_json`` of either wrote."""
    if "schema" in data:
        return StageSource(data["name"], Schema.from_json(data["schema"]))
    return StageJournal(data["name"], data["rounds_max"])
