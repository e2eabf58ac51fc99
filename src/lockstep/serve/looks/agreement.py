"""What each replica made of each of the newest epochs: a pure function of digests, publications and divergences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

from lockstep.control.status.health import ReplicaHealth
from lockstep.store.protocols import Digest, state_stage

Cell = Literal["published", "equal", "shadow", "late", "absent", "different", "forgotten"]
CELLS: tuple[Cell, ...] = get_args(Cell)
MEANINGS: Mapping[Cell, str] = {
    "published": "published here",
    "equal": "computed, equal to what was published",
    "shadow": "computed by another generation, not compared",
    "late": "not computed yet",
    "absent": "not computed here",
    "different": "different from what was published",
    "forgotten": "no longer kept",
}
EPOCHS_SHOWN = 200


@dataclass(frozen=True)
class Row:
    """One replica over the epochs of an :class:`Agreement`, the oldest first."""

    replica: str
    cells: tuple[Cell, ...]

    def counts(self) -> dict[Cell, int]:
        """How many epochs there are of each kind that occurs.

        >>> Row("r0", ("equal", "published", "equal")).counts()
        {'published': 1, 'equal': 2}
        """
        return {kind: self.cells.count(kind) for kind in CELLS if kind in self.cells}

    def runs(self, first: int, kinds: Collection[Cell]) -> list[tuple[Cell, int, int]]:
        """Where epochs of these kinds follow each other: the kind, the first and the last epoch.

        >>> Row("r0", ("equal", "absent", "absent", "different")).runs(7, {"absent", "different"})
        [('absent', 8, 9), ('different', 10, 10)]
        """
        found, at = [], first
        for kind, same in groupby(self.cells):
            length = len(list(same))
            if kind in kinds:
                found.append((kind, at, at + length - 1))
            at += length
        return found


@dataclass(frozen=True)
class Agreement:
    """The replicas beside each other, from epoch ``first`` on."""

    first: int
    last: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Evidence:
    """What is known of the epochs that are shown."""

    publishers: Mapping[int, str]
    digests: Mapping[int, Sequence[Digest]]
    differing: Collection[tuple[int, str]]
    """(epoch, replica) of which the job has said that they differ."""
    noise: Collection[int] = ()
    """Epochs whose floats differ in the last digits alone, which a job may allow."""
    floor: int = 0
    """Digests of earlier epochs are not kept any more."""


def agreement(replicas: Sequence[ReplicaHealth], evidence: Evidence, head_epoch: int) -> Agreement:
    """The newest epochs of these replicas."""
    first = max(0, head_epoch - EPOCHS_SHOWN + 1)
    rows = [Row(one.replica, tuple(_cell(e, one, evidence) for e in range(first, head_epoch + 1))) for one in replicas]
    return Agreement(first, head_epoch, tuple(rows))


def _cell(epoch: int, replica: ReplicaHealth, evidence: Evidence) -> Cell:
    said = evidence.digests.get(epoch, ())
    own = [one for one in said if one.replica == replica.replica and state_stage(one.sink) is None]
    publisher = evidence.publishers.get(epoch)
    if (epoch, replica.replica) in evidence.differing:
        return "different"
    if publisher == replica.replica:
        return "published"
    if own:
        return _compared(own, [one for one in said if one.replica == publisher], calm=epoch in evidence.noise)
    if replica.alive and replica.epoch < epoch:
        return "late"
    return "forgotten" if epoch < evidence.floor else "absent"


def _compared(own: Sequence[Digest], published: Sequence[Digest], *, calm: bool) -> Cell:
    """Against the publisher's digests of the same code; what nobody has published yet agrees with all there is."""
    theirs = {(one.sink, one.version): one.digest for one in published}
    if published and not any((one.sink, one.version) in theirs for one in own):
        return "shadow"
    differs = any(theirs.get((one.sink, one.version), one.digest) != one.digest for one in own)
    return "different" if differs and not calm else "equal"
