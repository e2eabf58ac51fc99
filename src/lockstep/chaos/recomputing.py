"""The same sealed epochs once more, undisturbed: one replica in a fresh folder, over a copy of ledger and journals."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from lockstep.chaos.running_job import JobProcess
from lockstep.chaos.subject import Subject, copy_project
from lockstep.config import STORE_FOLDER
from lockstep.errors import RunError
from lockstep.faults.switch import FOLDER_VARIABLE
from lockstep.store.journal import JOURNALS_FOLDER
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Item, Store

SEALER = "chaos"
START_S_MAX = 180.0
EPOCH_S_MAX = 2.0
"""What an epoch may take on average; in all, a run of a thousand epochs may take half an hour."""


def recompute(subject: Subject, project: Path, folder: Path, last: int, note: Callable[[str], None]) -> None:
    """Compute the epochs of ``project``'s ledger up to ``last`` again in ``folder``."""
    folder.mkdir()
    job = copy_project(subject, project, folder)
    journals = project / STORE_FOLDER / JOURNALS_FOLDER
    if journals.exists():
        shutil.copytree(journals, folder / STORE_FOLDER / JOURNALS_FOLDER)
    before = open_store(address_in(project / STORE_FOLDER), subject.graph.name)
    fresh = open_store(address_in(folder / STORE_FOLDER), subject.graph.name)
    try:
        copy_ledger(before, fresh, [step.id for step in subject.graph.sources], last)
    finally:
        before.close()
        fresh.close()
    note(f"computing {last + 1} epochs again, undisturbed, with one replica")
    # Bound to us: a chaos that is killed must not leave this run behind either.
    arguments = ["-m", "lockstep.chaos.ends_with_parent", str(os.getpid())]
    arguments += ["-m", "lockstep", "--project", str(folder), "run", job, "--replicas", "1"]
    arguments += ["--until-epoch", str(last), "--set", "retention_epochs_min=1000000"]
    environment = {key: value for key, value in os.environ.items() if key != FOLDER_VARIABLE}
    run = JobProcess("the undisturbed run", arguments, folder / "run.log", folder, environment)
    try:
        run.wait_end(START_S_MAX + EPOCH_S_MAX * last)
    finally:
        run.kill()


def copy_ledger(before: Store, fresh: Store, sources: list[str], last: int) -> None:
    """Seal the same entries up to epoch ``last`` in an empty ledger, with everything that was sealed beside them."""
    entries = [entry for entry in before.entries(0, 2**62) if entry.epoch <= last]
    if not entries or entries[0].epoch != 0:
        raise RunError(
            "LS0656",
            "the ledger does not begin with epoch 0",
            why="nothing was sealed." if not entries else f"its first entry is epoch {entries[0].epoch}.",
        )
    items: list[Item] = [item for source in sources for item in before.items(source, -(2**62), 2**62)]
    holder = fresh.begin(SEALER, os.getpid())
    for number, entry in enumerate(entries):
        # All items at once: they are looked up by position, not by epoch.
        fresh.seal(entry, holder, items if number == 0 else ())
    fresh.remove(SEALER)
