"""What Spark notes about the state in a checkpoint: its operators, the stores of each, and where their files are.

Spark writes a small file for every operator with state, before the operator's first batch. How many partitions there
are and how many stores an operator has (a join of two streams has four) is known from there and from nowhere else.
Read from the files, because a replica chooses what to start from before it asks Spark anything; the data source
``state-metadata`` shows the same, and a test compares the two.

    state/OPERATOR/_metadata/metadata      what most operators write, once
    state/OPERATOR/_metadata/v2/BATCH      what ``transformWithState`` writes, at the first batch of every start
    state/OPERATOR/PARTITION[/STORE]       the files of one partition of a store; the store "default" has no folder
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import RunError
from lockstep.runtime.state.checksums import sums_of, write_sums

_DEFAULT = "default"
_NOTES = ("v1", "v2")


@dataclass(frozen=True)
class StateStore:
    """One store of an operator: a table of keys and values, in partitions."""

    name: str
    partitions: int


@dataclass(frozen=True)
class StateOperator:
    """One operator with state, by Spark's number and name for it."""

    number: int
    name: str
    stores: tuple[StateStore, ...]
    variables: tuple[str, ...] = ()
    """The state variables of ``transformWithState``, which share its one store."""


@dataclass(frozen=True)
class StatePartition:
    """One partition of one store, and the folder with its files."""

    operator: StateOperator
    store: StateStore
    partition: int
    folder: Path

    def __str__(self) -> str:
        what = f"operator {self.operator.number} ({self.operator.name})"
        return f"{what}, store {self.store.name}, partition {self.partition}"


def state_operators(checkpoint: Path, batch: int) -> tuple[StateOperator, ...]:
    """The operators that have state at a committed ``batch``, by number; none for a query without state.

    Raises what reading does: OSError, ValueError or KeyError, if the notes are damaged.
    """
    state = checkpoint / "state"
    numbers = sorted(int(path.name) for path in state.iterdir() if path.name.isdigit()) if state.is_dir() else []
    if numbers != list(range(len(numbers))):
        raise ValueError(f"of operators 0 to {numbers[-1]} only {numbers} are there")
    return tuple(_operator(state / str(number), batch) for number in numbers)


def state_partitions(checkpoint: Path, batch: int) -> Iterator[StatePartition]:
    """Every partition of every store at ``batch``."""
    for operator in state_operators(checkpoint, batch):
        for store in operator.stores:
            for partition in range(store.partitions):
                inside = checkpoint / "state" / str(operator.number) / str(partition)
                folder = inside if store.name == _DEFAULT else inside / store.name
                yield StatePartition(operator, store, partition, folder)


def relocate(checkpoint: Path) -> None:
    """Make the notes of a checkpoint that was copied or moved name their files where they are now.

    ``transformWithState`` notes the absolute places of its schemas. In a copy these would be the files of the replica
    that it was copied from: gone as soon as that one is seeded itself.
    """
    for path in (checkpoint / "state").glob("[0-9]*/_metadata/v2/[0-9]*"):
        version, note = _read(path)
        before = json.dumps(note)
        operator = (checkpoint / "state" / path.parents[2].name).resolve()
        for store in note["stateStoreInfo"]:
            places = store.get("stateSchemaFilePaths", [])
            store["stateSchemaFilePaths"] = [_moved(place, operator) for place in places]
        if json.dumps(note) != before:
            _replace(path, f"{version}\n{json.dumps(note, separators=(',', ':'))}")


def note_partitions(checkpoint: Path, batch: int) -> None:
    """Make the notes say in how many partitions the state is at ``batch``, after it was laid out anew.

    Spark leaves the notes as they were, and its own reader of state goes by them. An operator that has one partition
    whatever the number (totals over everything) keeps it.
    """
    for operator in state_operators(checkpoint, batch):
        folder = checkpoint / "state" / str(operator.number)
        count = sum(_has_version(path, batch + 1) for path in folder.iterdir() if path.name.isdigit())
        path = _note_of(folder / "_metadata", batch)
        version, note = _read(path)
        for store in note["stateStoreInfo"]:
            store["numPartitions"] = count
        _replace(path, f"{version}\n{json.dumps(note, separators=(',', ':'))}")


def _has_version(partition: Path, version: int) -> bool:
    """Whether a partition, in whichever of its stores, has files of a version."""
    return any(partition.rglob(f"{version}.zip")) or any(partition.rglob(f"{version}.changelog"))


def _operator(folder: Path, batch: int) -> StateOperator:
    _, note = _read(_note_of(folder / "_metadata", batch))
    info = note["operatorInfo"]
    stores = tuple(StateStore(one["storeName"], int(one["numPartitions"])) for one in note["stateStoreInfo"])
    if int(info["operatorId"]) != int(folder.name) or not stores:
        raise ValueError(f"the note of operator {folder.name} is one of operator {info['operatorId']}")
    properties = json.loads(note.get("operatorPropertiesJson") or "{}")
    variables = tuple(one["stateName"] for one in properties.get("stateVariables", ()))
    return StateOperator(int(folder.name), info["operatorName"], stores, variables)


def _note_of(folder: Path, batch: int) -> Path:
    """The note that holds at ``batch``: the newest that is not of a later one."""
    numbered = [int(path.name) for path in folder.glob("v2/[0-9]*") if path.name.isdigit()]
    held = [number for number in numbered if number <= batch]
    return folder / "v2" / str(max(held)) if held else folder / "metadata"


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    version, _, text = path.read_text(encoding="utf-8").partition("\n")
    if version not in _NOTES:
        raise RunError(
            "LS0608",
            f"Spark's note {path.name} about the state of a step is {version[:20]!r}, this release reads v1 and v2",
            hint="run it with the release that wrote it, or start the job under another name.",
        )
    note = json.loads(text)
    assert isinstance(note, dict), "a note is an object"
    return version, note


def _moved(place: str, operator: Path) -> str:
    """The same file below the operator's folder as it is now."""
    _, folder, inside = place.partition("/_stateSchema/")
    if not place.startswith("file:") or not inside:
        raise ValueError(f"the schema of a state is said to be at {place}")
    return f"file:{operator}{folder}{inside}"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    # Its checksums go first: a note without them is read, a note with those of another is not.
    sums_of(path).unlink(missing_ok=True)
    temporary.replace(path)
    write_sums(path)
