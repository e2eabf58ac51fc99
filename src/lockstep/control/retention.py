"""What may be forgotten: everything below the lowest epoch that any replica still needs.

Journals can be read by several jobs; each notes in the journal's folder how far it needs it, and the lowest note counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.config import RunSettings
from lockstep.connect.protocols import SourceSide
from lockstep.store.protocols import Positions, Progress, Store


def floor_epoch(progress: Sequence[Progress], given_up: Sequence[str], settings: RunSettings) -> int:
    """The lowest epoch to keep.

    >>> floor_epoch([], [], RunSettings())
    0
    """
    needed = [one.epoch for one in progress if one.replica not in given_up]
    return max(0, min(needed) - settings.retention_epochs_min) if needed else 0


def forget(
    store: Store,
    sources: Mapping[str, SourceSide],
    journals: Mapping[str, Path],
    job: str,
    floor: int,
) -> None:
    """Forget what lies below ``floor`` in the ledger, the record and the sources."""
    entry = store.entry(floor - 1) if floor > store.floor() else None
    if entry is None:
        return
    for name, side in sources.items():
        positions = entry.cut.get(name)
        if positions is None:
            continue
        if name in journals:
            positions = _lowest_needed(journals[name], job, positions)
        side.trim(positions)
    store.trim(floor)


def _lowest_needed(journal: Path, job: str, positions: Positions) -> Positions:
    """Note how far this job needs the journal, and return what no job needs any more."""
    notes = journal / "readers"
    notes.mkdir(exist_ok=True)
    temporary = notes / f".{job}.new"
    temporary.write_text(json.dumps(dict(positions)), encoding="utf-8")
    temporary.replace(notes / f"{job}.json")
    wanted = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(notes.glob("*.json"))]
    return {part: min(int(note.get(part, 0)) for note in wanted) for part in positions}


def note_reader(journal: Path, job: str) -> None:
    """Say, before a job's first epoch, that it will read this journal: nothing may be trimmed until it has."""
    notes = journal / "readers"
    notes.mkdir(parents=True, exist_ok=True)
    path = notes / f"{job}.json"
    if not path.exists():
        path.write_text("{}", encoding="utf-8")
