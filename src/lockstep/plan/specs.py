"""What the plan needs to know of a source and a sink: plain data that describes itself and opens nothing."""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

from lockstep.plan.schema import Schema

Guarantee = Literal["exactly-once", "at-least-once"]


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
    def guarantee(self) -> Guarantee:
        """The strongest promise it can keep."""

    def describe(self) -> str:
        """One line for people."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other sink."""
