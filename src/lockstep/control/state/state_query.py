"""State from outside: what a step keeps for a key or a range of keys, as of a published epoch, while the job runs.

Read from a replica's checkpoint (or a savepoint's) by a process of its own: no JVM, no question to the replica, so that
no epoch waits (docs/decisions/0037-state-from-outside.md). Whoever asks often keeps one :class:`StateQueries`: it stays
at the files it has opened and reads what has changed since.
"""

from __future__ import annotations

import heapq
import itertools
import json
import shutil
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from pathlib import Path
from typing import Any

from lockstep.control.start.checkpoints import refuse_at_address
from lockstep.control.state.savepoint_files import read_savepoint
from lockstep.control.state.savepoints import Place, find
from lockstep.control.state.state_rows import Key, KeyedRows, NativeRows, Row, StepPlan, keys_of, unreadable
from lockstep.errors import RunError, ServiceError
from lockstep.plan.schema import did_you_mean
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.checkpoint import Standing, read_fingerprint, standing
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.state_metadata import state_partitions
from lockstep.runtime.state.store_reader import StoreReader
from lockstep.runtime.state.unsafe_rows import Field, Unreadable, fields_of
from lockstep.runtime.transfer.offers import own_folder
from lockstep.store.home import job_folder
from lockstep.store.opening import open_store
from lockstep.store.protocols import Store

LIMIT = 1000
"""Rows of an answer unless another number is asked for."""
_STAGES_MAX = 1000
_TRIES_MAX = 10
"""Spark deletes old files about every ten seconds: ten misses in a row mean something else."""


@dataclass(frozen=True)
class QueryResult:
    """What was found: the state after ``epoch``."""

    job: str
    step: str
    epoch: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    more: bool
    """Whether there were more rows than were asked for."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for: one key, a range of the key's first part, or everything."""

    key: tuple[str, ...] | None = None
    first: str | None = None
    """From this on."""
    last: str | None = None
    """Before this."""
    limit: int = LIMIT


def query(
    place: Place,
    step: str,
    *,
    key: Sequence[str] | None = None,
    first: str | None = None,
    last: str | None = None,
    limit: int = LIMIT,
    savepoint: str | None = None,
) -> QueryResult:
    """Ask once; keys are texts, read by the types of the step's key. For many questions: :class:`StateQueries`."""
    with StateQueries(place) as queries:
        wanted = Wanted(None if key is None else tuple(key), first, last, limit)
        return queries.ask(step, wanted, savepoint=savepoint)


class StateQueries:
    """Answers questions about the state of one job; safe to ask from several threads, one at a time is answered."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._scratch, self._held = own_folder(job_folder(place.home, place.job) / "query")
        self._opened: dict[Path, _Checkpoint] = {}
        self._number = itertools.count()
        self._mutex = threading.Lock()
        self._store: Store | None = None

    def ask(self, step: str, wanted: Wanted, *, savepoint: str | None = None) -> QueryResult:
        """The rows of a step by key."""
        with self._mutex:
            for left in reversed(range(_TRIES_MAX)):
                try:
                    return self._answer(step, wanted, savepoint)
                except (FileNotFoundError, struct.error):
                    # The replica went on meanwhile and took back what was about to be read.
                    if left == 0:
                        raise
        raise AssertionError("the last try returns or raises")

    def steps(self, *, savepoint: str | None = None) -> dict[str, str]:
        """The steps with state, and why one of them cannot be asked ("" if it can)."""
        plan = _plan(self._folders(savepoint)[0])
        return {str(step["id"]): unreadable(step) for step in plan["stateful"]}

    def close(self) -> None:
        """Give all files back."""
        for checkpoint in self._opened.values():
            checkpoint.close()
        self._opened.clear()
        if self._store is not None:
            self._store.close()
            self._store = None
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.with_suffix(".held").unlink(missing_ok=True)
        self._held.close()

    def __enter__(self) -> StateQueries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, name: str, wanted: Wanted, savepoint: str | None) -> QueryResult:
        folders = self._folders(savepoint)
        plan = self._checkpoint(folders[0]).plan
        step = _step(plan, name)
        stage, number = _operator_of(plan, name)
        checkpoint = self._checkpoint(folders[stage - 1])
        at = standing(checkpoint.folder)
        if at is None or at.batch < 0:
            raise _nothing_yet(self._place.job)
        native = step["step"] == "Aggregate"
        partitions = checkpoint.partitions(number, at.batch, native=native)
        rows: KeyedRows | NativeRows
        if native:
            rows = NativeRows(step, partitions, checkpoint.schemas(number))
        else:
            rows = KeyedRows(step, partitions, self._epoch_time_us(at, savepoint))
        keys = keys_of(step)
        found = _selected(rows, keys, wanted)
        columns = tuple(dict.fromkeys([*(key.name for key in keys), *(column for row in found for column in row)]))
        kept = tuple(found[: wanted.limit])
        return QueryResult(self._place.job, name, at.epoch, columns, kept, len(found) > wanted.limit)

    def _checkpoint(self, folder: Path) -> _Checkpoint:
        """The checkpoint in a folder, opened anew if another one has taken its place: the replica was seeded."""
        identity = (folder / "metadata").read_text(encoding="utf-8")
        found = self._opened.get(folder)
        if found is None or found.identity != identity:
            if found is not None:
                found.close()
            found = _Checkpoint(folder, identity, _plan(folder), self._scratch / f"checkpoint-{next(self._number)}")
            self._opened[folder] = found
        return found

    def _folders(self, savepoint: str | None) -> list[Path]:
        """The checkpoints of all stages: of a savepoint, or of the foremost replica on this host."""
        if savepoint is not None:
            folder = self._savepoint(savepoint)
            return list(checkpoint_folders(folder, len(read_savepoint(folder).stages)))
        refuse_at_address(self._opened_store(), self._place.job, "a question about state")
        found = {replica: self._checkpoints(replica) for replica in self._replicas()}
        standings = {replica: _epoch(folders) for replica, folders in found.items()}
        foremost = max(standings, key=lambda replica: standings[replica], default=None)
        if foremost is None or standings[foremost] < 0:
            raise _nothing_yet(self._place.job)
        return found[foremost]

    def _savepoint(self, text: str) -> Path:
        return find(self._place.home, text if "/" in text else f"{self._place.job}/{text}")

    def _replicas(self) -> list[str]:
        return sorted(path.name for path in (job_folder(self._place.home, self._place.job) / "replicas").glob("*"))

    def _checkpoints(self, replica: str) -> list[Path]:
        folder = replica_folder(self._place.home, self._place.job, replica)
        return list(takewhile(Path.is_dir, checkpoint_folders(folder, _STAGES_MAX)))

    def _epoch_time_us(self, at: Standing, savepoint: str | None) -> int:
        """What has outlived its time by the clock of the epoch is not told."""
        if savepoint is not None:
            entries = read_savepoint(self._savepoint(savepoint)).entries
            return next((one.epoch_time_us for one in entries if one.epoch == at.epoch), 0)
        entry = self._opened_store().entry(at.epoch)
        return entry.epoch_time_us if entry is not None else 0

    def _opened_store(self) -> Store:
        if self._store is None:
            self._store = open_store(self._place.address, self._place.job)
        return self._store


class _Checkpoint:
    """A checkpoint whose stores stay open between two questions. Where its stores are never changes while it lives."""

    def __init__(self, folder: Path, identity: str, plan: dict[str, Any], scratch: Path) -> None:
        self.folder = folder
        self.identity = identity
        self.plan = plan
        self._scratch = scratch
        self._readers: dict[int, list[StoreReader]] = {}
        self._schemas: dict[int, tuple[tuple[Field, ...], tuple[Field, ...]]] = {}

    def partitions(self, operator: int, batch: int, *, native: bool) -> list[StoreReader]:
        """The stores of an operator, as they are after a batch."""
        if operator not in self._readers:
            there = [one for one in state_partitions(self.folder, batch) if one.operator.number == operator]
            # A stage has one step with state in each of its branches, in their order: Spark numbers them so too.
            is_native = all("statestoresave" in one.operator.name.lower() for one in there)
            assert is_native == native, f"operator {operator} is {there[0].operator.name}"
            found = [Path(str(one.folder)) for one in there]
            self._readers[operator] = [
                StoreReader(folder, self._scratch / f"{operator}-{number}") for number, folder in enumerate(found)
            ]
        for reader in self._readers[operator]:
            reader.move_to(batch + 1)
        return self._readers[operator]

    def schemas(self, operator: int) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """The columns of an aggregation's keys and values."""
        if operator not in self._schemas:
            self._schemas[operator] = _schemas(self.folder, operator)
        return self._schemas[operator]

    def close(self) -> None:
        """Give its files back."""
        for readers in self._readers.values():
            for reader in readers:
                reader.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _selected(rows: KeyedRows | NativeRows, keys: tuple[Key, ...], wanted: Wanted) -> list[Row]:
    """The rows that are asked for, by key, and one more than the limit if there is one."""
    names = [part.name for part in keys]
    if wanted.key is not None:
        if len(wanted.key) != len(keys):
            raise _wrong_key(keys, wanted.key)
        key = [_typed(text, part) for text, part in zip(wanted.key, keys, strict=True)]
        return heapq.nsmallest(wanted.limit + 1, rows.of_key(key), key=_order(names))
    if not keys:
        # One group for all: there is nothing to choose from but its windows.
        return heapq.nsmallest(wanted.limit + 1, rows.all(), key=_order(names))
    low = _typed(wanted.first, keys[0]) if wanted.first is not None else None
    high = _typed(wanted.last, keys[0]) if wanted.last is not None else None

    def inside(row: Row) -> bool:
        value = row[names[0]]
        if value is None:
            return low is None and high is None
        return bool((low is None or value >= low) and (high is None or value < high))

    return heapq.nsmallest(wanted.limit + 1, filter(inside, rows.all()), key=_order(names))


def _order(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    """By key, nulls first, then by window."""
    more = ("window_start", "window_end")
    return lambda row: tuple(
        (row.get(name) is not None, row.get(name))
        for name in (*names, *more)
        if row.get(name) is not None or name in names
    )


def _typed(text: str, part: Key) -> Any:
    """A key's text as the value that Spark has; LS0733 if it is none of its type."""
    try:
        return _READERS.get(part.type, _read_decimal if part.type.startswith("decimal") else str)(text)
    except (ValueError, InvalidOperation):
        raise ServiceError(
            "LS0733",
            f'{text!r} is no value of the key "{part.name}"',
            why=f"it is a {part.type}.",
            hint=f"give it as in JSON: {_EXAMPLES.get(part.type, 'text')}.",
        ) from None


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _read_time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _read_decimal(text: str) -> Decimal:
    return Decimal(text)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "boolean": _read_bool,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "date": date.fromisoformat,
    "timestamp": _read_time,
}
_EXAMPLES = {"bigint": "42", "int": "42", "date": "2026-03-01", "timestamp": "2026-03-01T12:00:00Z", "boolean": "true"}


def _plan(checkpoint: Path) -> dict[str, Any]:
    noted = read_fingerprint(checkpoint)
    if noted is None:
        raise FileNotFoundError(checkpoint)
    return noted[0]


def _step(plan: Mapping[str, Any], name: str) -> StepPlan:
    steps: dict[str, StepPlan] = {str(step["id"]): step for step in plan["stateful"]}
    if name not in steps:
        known = list(steps)
        raise ServiceError(
            "LS0731",
            f'no step "{name}" keeps state',
            why=f"steps with state: {', '.join(known) or 'none'}.",
            hint=did_you_mean(name, known),
        )
    if why := unreadable(steps[name]):
        can = [one for one, step in steps.items() if not unreadable(step)]
        raise ServiceError(
            "LS0732",
            f'the state of step "{name}" cannot be asked for',
            why=f"{why}.",
            hint=f"these can: {', '.join(can)}." if can else "its results are in the sink.",
        )
    return steps[name]


def _operator_of(plan: Mapping[str, Any], name: str) -> tuple[int, int]:
    """The stage of a step, and its place among the operators with state of that stage."""
    places: dict[int, int] = {}
    for told in plan["operators"]:
        step, _, stage_text = told.partition(" in stage ")
        stage = int(stage_text or 1)
        number = places.get(stage, 0)
        places[stage] = number + 1
        if step == name:
            return stage, number
    raise AssertionError(f"{name} keeps state, so it is an operator")


def _schemas(checkpoint: Path, operator: int) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """The columns of an aggregation's keys and values, from Spark's note beside its first partition."""
    data = (checkpoint / "state" / str(operator) / "0" / "_metadata" / "schema").read_bytes()
    texts, at = [], 4
    if data[:at] != b"\x00\x02v2":
        raise Unreadable("a schema of another format")
    for _ in range(2):
        (chunks,) = struct.unpack_from(">i", data, at)
        at += 4
        text = b""
        for _ in range(chunks):
            (size,) = struct.unpack_from(">H", data, at)
            text += data[at + 2 : at + 2 + size]
            at += 2 + size
        texts.append(json.loads(text))
    return fields_of(texts[0]), fields_of(texts[1])


def _epoch(folders: Sequence[Path]) -> int:
    try:
        found = [standing(folder) for folder in folders]
    except RunError:
        return -1
    return min((at.epoch if at is not None and at.batch >= 0 else -1 for at in found), default=-1)


def _nothing_yet(job: str) -> ServiceError:
    return ServiceError(
        "LS0734",
        f'there is no state of job "{job}" on this host',
        why="no replica that lives here has computed an epoch.",
        hint=f"`lockstep status {job}` shows on which hosts its replicas are: ask there, or ask a savepoint.",
    )


def _wrong_key(keys: tuple[Key, ...], given: tuple[str, ...]) -> ServiceError:
    names = ", ".join(f"{part.name} {part.type}".strip() for part in keys)
    return ServiceError(
        "LS0733",
        f"the key has {len(keys)} parts, and {len(given)} came",
        why=f"its parts are: {names}.",
        hint=" ".join(f"--key {part.name.upper()}" for part in keys),
    )
