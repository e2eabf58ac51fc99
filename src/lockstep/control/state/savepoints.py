"""Savepoints: named snapshots of a job that are kept, can be copied anywhere, and can be started from.

Taken beside the job, running or not: a replica's checkpoint is copied as a peer copies it that starts
(``runtime/state/snapshot.py``), over the agent if the replica lives on another host. While one is pinned, retention
leaves what starting from it needs: the journal's records and the ledger after its epoch.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path

import pyarrow as pa

from lockstep.clock import wall_us
from lockstep.config import STORE_FOLDER, Settings, load_settings
from lockstep.connect.protocols import FILES, JOURNALS
from lockstep.connect.put_back import SOURCES
from lockstep.control.start.checkpoints import refuse_at_address
from lockstep.control.start.continuing import BUCKETS
from lockstep.control.state.savepoint_files import (
    JOURNALS_FOLDER,
    MANIFEST,
    KeptJournal,
    Savepoint,
    read_savepoint,
    verified,
    write_items,
)
from lockstep.control.supervise.retention import PINS, pinned_epochs
from lockstep.errors import LockstepError, RunError, ServiceError
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.checkpoint import Plan, read_fingerprint, standing
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.recovery import situation_of
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.runtime.transfer.manifest import StageStanding, check_room, list_files
from lockstep.store.derived import ORDER
from lockstep.store.home import job_folder, list_job_folders
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.names import checked_name
from lockstep.store.opening import absolute, open_store
from lockstep.store.protocols import Entry, Item, Progress, Store, state_stage

FOLDER = "savepoints"
_STAGES_MAX = 1000
_FIRST_POSITION = -(2**63)
_GENERATION = "generation"


@dataclass(frozen=True)
class Place:
    """A job of a project, as whoever takes or lists its savepoints needs it."""

    home: Path
    address: str
    job: str
    settings: Settings

    @staticmethod
    def of(project: Path, job: str) -> Place:
        """The job of this name in a project folder."""
        settings = load_settings(project)
        return Place((project / STORE_FOLDER).resolve(), absolute(settings.store, project), job, settings)

    @property
    def folder(self) -> Path:
        """Where its savepoints are on this host."""
        return job_folder(self.home, self.job) / FOLDER


@dataclass(frozen=True)
class Kept:
    """A savepoint of this host as it is listed."""

    savepoint: Savepoint
    folder: Path
    pinned: bool


def take(place: Place, name: str, *, pinned: bool = True, clock: Callable[[], int] = wall_us) -> Kept:
    """Take a savepoint of a job, which may be running; on disk, whole and checked when this returns."""
    checked_name("savepoint", name)
    store = open_store(place.address, place.job)
    try:
        with _alone(place.folder):
            _sweep(place, store)
            if (place.folder / name).exists():
                raise _taken_before(place.job, name)
            return _taken(place, store, name, pinned=pinned, clock=clock)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _disk_full(place.folder, str(error)) from None
    finally:
        store.close()


def list_savepoints(place: Place) -> list[Kept]:
    """The savepoints of a job on this host, oldest first. Their files are not read: that is done before a start."""
    store = open_store(place.address, place.job)
    try:
        pins = pinned_epochs(store)
    finally:
        store.close()
    found = [read_savepoint(path) for path in _folders(place.folder)]
    kept = [Kept(one, place.folder / one.name, one.name in pins) for one in found]
    return sorted(kept, key=lambda one: one.savepoint.taken_us)


def delete(place: Place, name: str) -> None:
    """Forget a savepoint: what only it needed goes with the next look at retention."""
    checked_name("savepoint", name)
    store = open_store(place.address, place.job)
    try:
        with _alone(place.folder):
            folder = place.folder / name
            if not (folder / MANIFEST).exists():
                raise _unknown(place.folder, f"{place.job}/{name}")
            # Not whole any more from here on; the pin goes last, so that no half of it is without one.
            (folder / MANIFEST).unlink()
            shutil.rmtree(folder)
            _change_pins(store, lambda pins: {one: pin for one, pin in pins.items() if one != name})
            store.add_event("savepoint-deleted", name)
    finally:
        store.close()


def check_takeable(place: Place, name: str) -> None:
    """Refuse what :func:`take` would refuse whatever the job does: before somebody stops it for that."""
    checked_name("savepoint", name)
    if (place.folder / name).exists():
        raise _taken_before(place.job, name)
    store = open_store(place.address, place.job)
    try:
        _refuse_unsuited(store, place.job)
        _refuse_elsewhere(place, store)
    finally:
        store.close()


def find(home: Path, text: str, *, paths: bool = True) -> Path:
    """The folder of a savepoint: a path unless it came from elsewhere (``paths``), ``JOB/NAME``, or a name that only
    one job of this project has."""
    if paths and (Path(text).expanduser() / MANIFEST).exists():
        return Path(text).expanduser().resolve()
    job, _, name = text.rpartition("/")
    jobs = [job] if job else list_job_folders(home)
    try:
        named = [job_folder(home, checked_name("job", one)) / FOLDER / checked_name("savepoint", name) for one in jobs]
    except LockstepError:
        named = []
    found = [path for path in named if (path / MANIFEST).exists()]
    if len(found) == 1:
        return found[0]
    raise _unknown(home, text, [f"{path.parents[1].name}/{path.name}" for path in found])


def _taken(place: Place, store: Store, name: str, *, pinned: bool, clock: Callable[[], int]) -> Kept:
    _refuse_unsuited(store, place.job)
    head = store.head()
    if head is None:
        raise _nothing_yet(place.job)
    fresh = place.folder / f".{name}.new"
    # From here on nothing goes that it will need: it stands no further back than the ledger reaches.
    _pin(store, name, store.floor())
    try:
        fresh.mkdir(parents=True)
        taken = _copied(place, store, fresh, name, clock)
        taken.write(fresh)
        verified(fresh)
        fresh.rename(place.folder / name)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        _unpin(store, name)
        raise
    if pinned:
        _pin(store, name, taken.epoch)
    else:
        _unpin(store, name)
    store.add_event("savepoint", f"{name} at epoch {taken.epoch}, {taken.size / 1e6:.1f} MB")
    return Kept(taken, place.folder / name, pinned)


def _copied(place: Place, store: Store, fresh: Path, name: str, clock: Callable[[], int]) -> Savepoint:
    whose, stages = _state(place, store, fresh)
    noted = read_fingerprint(fresh / stages[0].folder) if stages else None
    if noted is None:
        raise _nothing_yet(place.job)
    entries = store.entries(min(one.epoch for one in stages), max(one.epoch for one in stages))
    journals = _journals(place, store, fresh, entries)
    write_items(fresh, _items(store, entries[-1]))
    facts = {fact: value for fact in (BUCKETS, _GENERATION) if (value := store.fact(fact)) is not None}
    return Savepoint(
        id=uuid.uuid4().hex,
        job=place.job,
        name=name,
        taken_us=clock(),
        replica=whose,
        plan=noted[0],
        version=noted[1],
        environment=store.fact("environment") or "",
        facts=facts,
        stages=stages,
        entries=tuple(entries),
        observed={str(one.epoch): store.observed(one.epoch) for one in entries},
        journals=journals,
        state_digests=_digests(store, stages),
        files=list_files(fresh),
    )


def _state(place: Place, store: Store, fresh: Path) -> tuple[str, tuple[StageStanding, ...]]:
    """Copy the checkpoints of the foremost replica that may be started from: one that runs, or was left when all ended.

    Whoever cannot be copied is passed over. The last stage first: then none has read what another has not written.
    """
    head = store.head()
    # While results change, those in the shadow have another state.
    healthy = [
        one
        for one in situation_of(store, "", None, sound=False).peers
        if head is None or one.results_of == head.generation
    ]
    running = sorted(healthy, key=lambda one: -one.epoch)
    here = [one for one in running if not one.host or replica_folder(place.home, place.job, one.replica).is_dir()]
    tries: list[Callable[[], tuple[str, tuple[StageStanding, ...]]]] = [
        *(partial(_copied_here, place, one.replica, fresh) for one in here),
        *(partial(_fetched, place, store, one, fresh) for one in running if one not in here),
    ]
    if not running:
        tries = [partial(_copied_here, place, replica, fresh) for replica in _stopped(place)]
    failure: LockstepError = _nothing_yet(place.job)
    for attempt in tries:
        try:
            return attempt()
        except RunError as error:
            failure = error
            for path in fresh.iterdir():
                shutil.rmtree(path)
    raise failure


def _copied_here(place: Place, replica: str, fresh: Path) -> tuple[str, tuple[StageStanding, ...]]:
    folders = _checkpoints(place, replica)
    check_room(fresh, sum(path.lstat().st_size for folder in folders for path in _files(folder)))
    stages = []
    for folder in reversed(folders):
        at = copy_checkpoint(folder, fresh / folder.name)
        stages.append(StageStanding(folder.name, at.batch, at.epoch))
    return replica, tuple(reversed(stages))


def _fetched(place: Place, store: Store, peer: Progress, fresh: Path) -> tuple[str, tuple[StageStanding, ...]]:
    """From the host that the replica lives on, as a replica that starts would."""
    # Imported late: on one host nobody needs TLS and HTTP.
    from lockstep.runtime.transfer.manifest import Manifest, Wanted
    from lockstep.runtime.transfer.offers import not_for_seeding
    from lockstep.runtime.transfer.receiving import Pace, ask_for, receive
    from lockstep.runtime.transfer.snapshots import address_of, connected

    wanted = Wanted(place.job, peer.replica, peer.incarnation)

    def check(manifest: Manifest) -> None:
        if manifest.wanted != wanted or not store.is_live(wanted.holder):
            raise not_for_seeding(wanted.holder, "it was retired meanwhile")

    hosts = place.settings.hosts
    with connected(address_of(place.address, peer.host), hosts) as host:
        came = fresh / "came"
        pace = Pace(hosts.seed_bytes_per_s_max)
        manifest = receive(host, ask_for(host, wanted), came, check, pace=pace)
    for stage in manifest.stages:
        (came / stage.folder).rename(fresh / stage.folder)
    came.rmdir()
    return str(wanted.holder), manifest.stages


def _stopped(place: Place) -> list[str]:
    """The replicas that have a checkpoint here, the foremost first."""
    epochs: dict[str, int] = {}
    for folder in sorted((job_folder(place.home, place.job) / "replicas").glob("*")):
        try:
            found = [standing(checkpoint) for checkpoint in _checkpoints(place, folder.name)]
        except RunError:
            continue
        if found and all(at is not None and at.batch >= 0 for at in found):
            epochs[folder.name] = min(at.epoch for at in found if at is not None)
    return sorted(epochs, key=lambda replica: -epochs[replica])


def _checkpoints(place: Place, replica: str) -> list[Path]:
    folder = replica_folder(place.home, place.job, replica)
    return list(takewhile(Path.is_dir, checkpoint_folders(folder, _STAGES_MAX)))


def _journals(place: Place, store: Store, fresh: Path, entries: list[Entry]) -> tuple[KeptJournal, ...]:
    """What is on its way inside the job: everything from where the stage furthest behind reads."""
    inside = sorted(entries[0].cut.keys() - json.loads(store.fact(SOURCES) or "{}").keys())
    (fresh / JOURNALS_FOLDER).mkdir()
    found = []
    for name in inside:
        journal = open_journal(job_folder(place.home, place.job), name)
        try:
            found.append(_kept(journal, name, entries, fresh))
        finally:
            journal.close()
    return tuple(found)


def _kept(journal: SqliteJournal, name: str, entries: list[Entry], fresh: Path) -> KeptJournal:
    fences = journal.fences(entries[0].epoch, entries[-1].epoch)
    first = entries[0].cut[name]["0"]
    end = max([first, *(fence[3] for fence in fences)])
    kept = KeptJournal(name, first, tuple(fences))
    with pa.OSFile(str(fresh / kept.file), "wb") as file, pa.ipc.new_file(file, journal.schema) as writer:
        for batch in journal.read(0, first, end):
            writer.write_batch(batch)
    return kept


def _items(store: Store, head: Entry) -> Iterator[Item]:
    for source, positions in head.cut.items():
        last = max([1, *positions.values()])
        yield from store.items(source, _FIRST_POSITION, last)


def _digests(store: Store, stages: tuple[StageStanding, ...]) -> dict[str, str]:
    """Where replicas had reason to compare their state after the very epoch, what they found."""
    found: dict[str, str] = {}
    for number, stage in enumerate(stages, start=1):
        of_stage = [one for one in store.digests(stage.epoch) if state_stage(one.sink) == number]
        found |= {one.sink: one.digest for one in of_stage}
    return found


def _refuse_unsuited(store: Store, job: str) -> None:
    refuse_at_address(store, job, "a savepoint")
    if store.fact(ORDER) is not None:
        raise _unsuited(job, 'it has order="derived": its replicas keep their ledgers for themselves')
    head, address = store.head(), store.fact(JOURNALS)
    if head is None or address in (None, FILES):
        return
    inside = head.cut.keys() - json.loads(store.fact(SOURCES) or "{}").keys()
    if inside:
        raise _unsuited(job, f"{', '.join(sorted(inside))} inside it is a topic, whose records a folder cannot hold")


def _refuse_elsewhere(place: Place, store: Store) -> None:
    """Once a job has stopped, hosts hand out nothing: its state is taken from folders here."""
    said = store.progress()
    if not said or any(not one.host or replica_folder(place.home, place.job, one.replica).is_dir() for one in said):
        return
    raise ServiceError(
        "LS0720",
        f'once job "{place.job}" has stopped, there is nothing here to take a savepoint of',
        why=f"its state is on {', '.join(sorted({one.host for one in said}))}; hosts hand it out while replicas run.",
        hint=f"first `lockstep savepoint {place.job} NAME`, then `lockstep stop {place.job}`.",
    )


def _change_pins(store: Store, change: Callable[[dict[str, Plan]], dict[str, Plan]]) -> None:
    for _ in itertools.repeat(None):
        held = store.fact(PINS)
        after = json.dumps(change(json.loads(held or "{}")), sort_keys=True)
        if after == held or store.swap_fact(PINS, held, after):
            return


def _pin(store: Store, name: str, epoch: int) -> None:
    pin: Plan = {"epoch": epoch, "host": socket.gethostname()}
    _change_pins(store, lambda pins: {**pins, name: pin})


def _unpin(store: Store, name: str) -> None:
    _change_pins(store, lambda pins: {one: pin for one, pin in pins.items() if one != name})


def _sweep(place: Place, store: Store) -> None:
    """What somebody who was killed has left: half a savepoint, or the pin of one that never came to be."""
    for left in place.folder.glob(".*.new"):
        shutil.rmtree(left)
    whole = {path.name for path in _folders(place.folder)}
    for path in place.folder.iterdir():
        if path.is_dir() and path.name not in whole:
            shutil.rmtree(path)

    def living(pins: dict[str, Plan]) -> dict[str, Plan]:
        mine = socket.gethostname()
        return {name: pin for name, pin in pins.items() if name in whole or pin.get("host") != mine}

    _change_pins(store, living)


def _folders(folder: Path) -> list[Path]:
    """Savepoints that are whole: the manifest comes last."""
    return sorted(path.parent for path in folder.glob(f"[!.]*/{MANIFEST}"))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One at a time takes or deletes savepoints of a job on this host; whoever is killed gives the lock back."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(
                "LS0721",
                "another savepoint of this job is being taken or deleted",
                why="one at a time: each reads the whole state.",
                hint="try again in a moment.",
            ) from None
        yield


def _nothing_yet(job: str) -> ServiceError:
    return ServiceError(
        "LS0720",
        f'there is nothing to take a savepoint of: job "{job}" has no state here',
        why="no replica on this host or any other has computed an epoch.",
        hint=f"see `lockstep status {job}`; take it where the job runs, once an epoch is published.",
    )


def _taken_before(job: str, name: str) -> ServiceError:
    return ServiceError(
        "LS0721",
        f'job "{job}" has a savepoint "{name}" already',
        why="a savepoint is never replaced: somebody may rely on it.",
        hint=f"choose another name, or `lockstep savepoints {job} --delete {name}` first.",
    )


def _disk_full(folder: Path, why: str) -> ServiceError:
    return ServiceError(
        "LS0724",
        "there is no room for the savepoint",
        why=f"{why}. What had been written was removed.",
        hint=f"make room on the disk of {folder}, or delete older ones: `lockstep savepoints --delete NAME`.",
    )


def _unsuited(job: str, why: str) -> ServiceError:
    return ServiceError(
        "LS0725",
        f'no savepoint can be taken of job "{job}"',
        why=f"{why}.",
        hint="its state is kept by its replicas all the same; stop and start it as it is.",
    )


def _unknown(folder: Path, text: str, several: list[str] | None = None) -> ServiceError:
    if several:
        why, hint = f"there are: {', '.join(several)}.", f"say which: --from {several[0]}"
    else:
        why = f"there is none in {folder}, and no folder of that name with a {MANIFEST}."
        hint = "`lockstep savepoints JOB` lists those of a job; JOB/NAME or the path of a folder name one."
    return ServiceError("LS0722", f'there is no savepoint "{text}"', why=why, hint=hint)
