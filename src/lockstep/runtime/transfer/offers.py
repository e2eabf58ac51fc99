"""The serving side: snapshots, each in a folder of its own until its reader has it all or stays away."""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import IO, Protocol

from lockstep.errors import LockstepError, RunError
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.checkpoint import read_fingerprint, written_by
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.runtime.transfer.manifest import Manifest, StageStanding, Wanted, check_room, list_files
from lockstep.store.protocols import Holder, Store

LEASE_S = 180.0
"""A reader that has asked for nothing for so long is gone; one that comes back later asks for a new snapshot."""
OFFERS_MAX = 4
"""Each takes the room of a snapshot on the disk. Replicas come back one at a time, with rare exceptions."""
_END_S = 10.0
_STAGES_MAX = 1000


@dataclass(frozen=True)
class Peer:
    """A replica that lives on this host."""

    holder: Holder
    checkpoints: Sequence[Path]
    """A folder for each stage."""
    environment: str


class Peers(Protocol):
    """The replicas of this host."""

    def find(self, job: str, replica: str) -> Peer | None:
        """The replica as it lives now, None if it does not (it was retired, or is none of this host's)."""


class PeersOfStore:
    """The replicas of this host as the stores of their jobs know them."""

    def __init__(self, home: Path, store_of: Callable[[str], Store | None]) -> None:
        self._home = home
        self._store_of = store_of

    def find(self, job: str, replica: str) -> Peer | None:
        """The newest incarnation, unless it was retired; whether it writes here is said by the checkpoints."""
        store = self._store_of(job)
        said = {one.replica: one for one in store.progress()} if store is not None else {}
        if store is None or replica not in said:
            return None
        holder = Holder(replica, said[replica].incarnation)
        folders = checkpoint_folders(replica_folder(self._home, job, replica), _STAGES_MAX)
        there = list(takewhile(Path.is_dir, folders))
        if not store.is_live(holder) or not there:
            return None
        return Peer(holder, there, store.fact("environment") or "")


@dataclass
class Offer:
    """One snapshot for one reader."""

    name: str
    wanted: Wanted
    folder: Path
    until_s: float
    manifest: Manifest | None = None
    """None while the snapshot is taken."""
    failure: LockstepError | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    keeper: threading.Thread | None = None

    def file(self, number: int) -> Path | None:
        """A file by its place in the manifest."""
        if self.manifest is None or not 0 <= number < len(self.manifest.files):
            return None
        return self.folder / self.manifest.files[number].path


class Offers:
    """All that this host offers. What a server that was killed has left in ``folder`` is removed when it is opened."""

    def __init__(
        self, folder: Path, peers: Peers, *, lease_s: float = LEASE_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._peers = peers
        self._lease_s = lease_s
        self._now_s = now_s
        self._offers: dict[str, Offer] = {}
        self._mutex = threading.Lock()
        self._home, self._held = own_folder(folder)

    def ask(self, name: str, wanted: Wanted) -> Offer:
        """Begin to take a snapshot, unless that was begun before: a question may come twice. Refused with LS0666."""
        with self._mutex:
            offer = self._offers.get(name)
            if offer is None:
                if len(self._offers) >= OFFERS_MAX:
                    raise _busy()
                offer = Offer(name, wanted, self._home / name, self._now_s() + self._lease_s)
                self._offers[name] = offer
                offer.keeper = threading.Thread(target=self._keep, args=[offer], name=f"offer-{name}", daemon=True)
                offer.keeper.start()
        return self.find(name)

    def find(self, name: str) -> Offer:
        """An offer that somebody asks for, whose lease begins anew. LS0665 if there is none (any more)."""
        with self._mutex:
            offer = self._offers.get(name)
            if offer is None or offer.until_s <= self._now_s():
                raise RunError(
                    "LS0665",
                    "a snapshot is not offered any more",
                    why=f"nobody asked for it for {self._lease_s:g} s, or the agent that offered it was started anew.",
                    hint="the replica asks for a new one when it is tried again, after a pause.",
                )
            offer.until_s = self._now_s() + self._lease_s
            return offer

    def end(self, name: str) -> None:
        """The reader has all of it."""
        with self._mutex:
            offer = self._offers.get(name)
        if offer is not None:
            offer.ended.set()

    def close(self) -> None:
        """Take all offers back."""
        with self._mutex:
            offers = list(self._offers.values())
        for offer in offers:
            offer.ended.set()
            assert offer.keeper is not None
            offer.keeper.join(_END_S)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.with_suffix(".held").unlink(missing_ok=True)
        self._held.close()

    def __enter__(self) -> Offers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, offer: Offer) -> None:
        """Take the snapshot, wait until nobody wants it any more, remove it."""
        try:
            offer.manifest = self._taken(offer)
        except LockstepError as error:
            offer.failure = error
        except Exception as error:
            # Whatever it is, the reader is told: it would wait for a snapshot that nobody takes any more.
            why = f"{type(error).__name__}: {error}."
            offer.failure = RunError("LS0660", f"no snapshot could be taken of {offer.wanted.replica}", why=why)
        while (left_s := offer.until_s - self._now_s()) > 0 and not offer.ended.wait(left_s):
            pass
        with self._mutex:
            del self._offers[offer.name]
        shutil.rmtree(offer.folder, ignore_errors=True)

    def _taken(self, offer: Offer) -> Manifest:
        peer = self._living(offer.wanted)
        check_room(self._home, sum(_size(folder) for folder in peer.checkpoints))
        stages = []
        for folder in peer.checkpoints:
            at = copy_checkpoint(folder, offer.folder / folder.name)
            _check_writer(offer.folder / folder.name, offer.wanted)
            stages.append(StageStanding(folder.name, at.batch, at.epoch))
        # It may have been retired while it was copied: what a retired one writes nobody may start from.
        self._living(offer.wanted)
        noted = read_fingerprint(offer.folder / stages[0].folder)
        assert noted is not None, "the note says who wrote it"
        return Manifest(offer.wanted, peer.environment, *noted, tuple(stages), list_files(offer.folder))

    def _living(self, wanted: Wanted) -> Peer:
        peer = self._peers.find(wanted.job, wanted.replica)
        if peer is None:
            raise not_for_seeding(wanted.holder, "it was retired, or does not run on that host")
        if peer.holder != wanted.holder:
            raise not_for_seeding(wanted.holder, f"it was retired; {peer.holder} runs now")
        return peer


def not_for_seeding(holder: Holder, reason: str) -> RunError:
    """The error for a peer that nobody may start from."""
    return RunError(
        "LS0661",
        f"the snapshot of {holder} is not one to start from",
        why=f"{reason}.",
        hint="the replica is tried again after a pause, from whoever is healthy then; see `lockstep status`.",
    )


def _check_writer(checkpoint: Path, wanted: Wanted) -> None:
    """A replica that moved leaves its folder behind, and one that is cut off may go on writing in it."""
    writer = written_by(checkpoint)
    if writer != wanted.incarnation:
        whose = "of nobody known" if writer is None else f"of {Holder(wanted.replica, writer)}"
        raise not_for_seeding(wanted.holder, f"the checkpoint on that host is {whose}")


def _busy() -> RunError:
    return RunError(
        "LS0666",
        f"a host offers {OFFERS_MAX} snapshots already",
        why="each takes room on its disk, and time from the replicas that publish there.",
        hint="the replica asks again by itself.",
    )


def _size(folder: Path) -> int:
    """How many bytes the files of a checkpoint have, of which some may vanish meanwhile."""
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.lstat().st_size
        except FileNotFoundError:
            continue
    return found


def own_folder(folder: Path) -> tuple[Path, IO[bytes]]:
    """A folder that is this process's as long as it lives; those of processes that do not live are removed.

    A lock tells, not a process id: ids are used again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        for left in folder.glob("*.held"):
            with left.open("ab") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                shutil.rmtree(left.with_suffix(""), ignore_errors=True)
                left.unlink()
        home = folder / uuid.uuid4().hex
        mine = home.with_suffix(".held").open("ab")
        fcntl.flock(mine, fcntl.LOCK_EX)
        home.mkdir(mode=0o700)
    return home, mine


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
