"""What the matrix knows of a job: how to make it, what it is given, and what has to come out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import lockstep as ls
from lockstep.testing import Trial

Row = dict[str, Any]
Inputs = dict[str, list[list[Row]]]
"""For each source, the records of each epoch."""
Rows = list[tuple[Any, ...]]
"""The epoch that published a row, and the row's values."""
Expected = Mapping[str, Rows]


@dataclass(frozen=True)
class Given:
    """What a job was given. Epochs after the last one have no records; they count as one, :attr:`end`."""

    inputs: Inputs
    folder: Path
    """The project's folder, for a job that reads files."""

    @property
    def end(self) -> int:
        """The number of epochs with input, and of the epoch that stands for all after them."""
        return max(len(epochs) for epochs in self.inputs.values())

    def up_to(self, epochs: int) -> Given:
        """The same, if the life ended after so many epochs."""
        return Given({source: each[:epochs] for source, each in self.inputs.items()}, self.folder)

    def records(self, source: str = "events") -> Iterator[tuple[int, Row]]:
        """Every record with its epoch, in the order of positions."""
        for epoch, records in enumerate(self.inputs[source]):
            for record in records:
                yield epoch, record


def put_into_journals(trial: Trial, given: Given, epoch: int) -> None:
    """How most jobs get their records: every source is a journal under its own name."""
    for source, epochs in given.inputs.items():
        if epochs[epoch]:
            trial.put(source, epochs[epoch])


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    name: str
    family: str
    job: Callable[[Given], ls.Job]
    inputs: Callable[[Random, int], Inputs]
    expected: Callable[[Given], Expected]
    """An independent reference: by sink the rows that have to be there, each with its epoch."""
    by_epoch: bool = True
    """Whether the epoch that publishes a row is part of the promise; between stages it is not."""
    feed: Callable[[Trial, Given, int], None] = put_into_journals
    by_itself: bool = False
    """Whether its records come by themselves, one epoch after the other: then its life is never cut short."""
    settings: Mapping[str, object] = field(default_factory=dict)
