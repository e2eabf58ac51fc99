"""Where a replica gets the snapshot of a peer from: this host's folders, or the host that the peer lives on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.config import HostSettings
from lockstep.errors import RunError
from lockstep.plan.fingerprints import differences
from lockstep.runtime.state.checkpoint import Plan, Standing
from lockstep.runtime.state.folders import Snapshots, checkpoint_folders
from lockstep.runtime.transfer.client import HostClient
from lockstep.runtime.transfer.manifest import Manifest, Wanted
from lockstep.runtime.transfer.offers import not_for_seeding
from lockstep.runtime.transfer.receiving import Fetched, Pace, ask_for, receive
from lockstep.security import TlsFiles, load_token
from lockstep.store.opening import announced_hosts
from lockstep.store.protocols import Holder, Store


@dataclass(frozen=True)
class Starting:
    """What the state of a peer has to fit: this start of a replica."""

    job: str
    replica: str
    stages: int
    plan: Plan
    version: str
    """Empty: any, as while the job's code changes. Whose results fit was seen before."""
    in_another: bool = False
    """Whether it runs in an environment of its own: digests tell whether it computes the same."""

    def misfits(self, manifest: Manifest, wanted: Wanted, environment: str) -> list[str]:
        """Why a snapshot is not one to start from; empty if it is."""
        folders = [path.name for path in checkpoint_folders(Path(), self.stages)]
        found = self._plan_differences(manifest.plan)
        if manifest.wanted != wanted:
            found.append(f"it is of {manifest.wanted.holder} of {manifest.wanted.job}")
        if self.version and manifest.version != self.version:
            found.append("that replica runs another version of the job's code")
        if not self.in_another and manifest.environment != environment:
            found.append(f"the environments differ: {manifest.environment} there, {environment} here")
        if [stage.folder for stage in manifest.stages] != folders:
            found.append(f"it has {len(manifest.stages)} stages and not {self.stages}")
        return found

    def _plan_differences(self, theirs: Plan) -> list[str]:
        try:
            return differences(theirs, self.plan)
        except (KeyError, TypeError, AttributeError):
            return ["its plan is none that this release knows"]


class SnapshotsElsewhere:
    """The peers of other hosts: all stages are fetched at once, and then handed out one by one."""

    def __init__(
        self,
        connect: Callable[[str], HostClient],
        store: Store,
        starting: Starting,
        folder: Path,
        pace: Pace,
    ) -> None:
        self._connect = connect
        self._store = store
        self._starting = starting
        self._seed = folder / "seed"
        self._pace = pace
        self._standings: Sequence[Standing] = ()

    def copy(self, peer: str, stage: int, target: Path) -> Standing:
        """Fetch the peer's snapshot with its first stage; put this stage of it at ``target``."""
        if stage == 0:
            self._fetch(peer)
        (self._seed / checkpoint_folders(Path(), self._starting.stages)[stage].name).rename(target)
        if stage == self._starting.stages - 1:
            shutil.rmtree(self._seed)
        return self._standings[stage]

    def _fetch(self, peer: str) -> None:
        incarnations = {one.replica: one.incarnation for one in self._store.progress()}
        if peer not in incarnations:
            raise not_for_seeding(Holder(peer, 0), "it has left the job")
        wanted = Wanted(self._starting.job, peer, incarnations[peer])
        with self._connect(peer) as host:
            manifest = receive(
                host,
                ask_for(host, wanted),
                self._seed,
                lambda manifest: self._check(manifest, wanted),
                pace=self._pace,
                tell=lambda fetched: self._tell(peer, fetched),
            )
        self._standings = [Standing(stage.batch, stage.epoch, stage.epoch) for stage in manifest.stages]

    def _check(self, manifest: Manifest, wanted: Wanted) -> None:
        misfits = self._starting.misfits(manifest, wanted, self._store.fact("environment") or "")
        if not self._store.is_live(wanted.holder):
            # What it has computed since may contradict the ledger that the others follow.
            misfits.append("it was retired meanwhile")
        if misfits:
            raise not_for_seeding(wanted.holder, "; ".join(misfits))

    def _tell(self, peer: str, fetched: Fetched) -> None:
        self._store.add_event("seeding", f"{fetched} from {peer}", self._starting.replica)


class SnapshotsAnywhere:
    """Peers of this host and of others."""

    def __init__(self, here: Snapshots, elsewhere: Snapshots, is_elsewhere: Callable[[str], bool]) -> None:
        self._here = here
        self._elsewhere = elsewhere
        self._is_elsewhere = is_elsewhere

    def copy(self, peer: str, stage: int, target: Path) -> Standing:
        """From wherever the peer lives."""
        chosen = self._elsewhere if self._is_elsewhere(peer) else self._here
        return chosen.copy(peer, stage, target)


def connected(address: str, settings: HostSettings) -> HostClient:
    """A client for the host at an address, with what this host shows of itself."""
    tls = tls_files(settings)
    return HostClient(address, host_token(settings), tls.for_asking() if tls is not None else None)


def address_of(store: str, host: str) -> str:
    """Where the agent of a host listens, by the registry beside the job's store. LS0668 if it is not there now."""
    said = announced_hosts(store).get(host)
    if said is None:
        raise RunError(
            "LS0668",
            f'the host "{host}" is not there now',
            why="its agent does not announce itself at the store: it was stopped, or is cut off.",
            hint="nothing to do if other replicas live: the replica is tried again after a pause.",
        )
    return str(said["address"])


def host_token(settings: HostSettings) -> str | None:
    """What this host shows to others, None if it has no token."""
    return load_token(Path(settings.token_file).expanduser() if settings.token_file else None)


def tls_files(settings: HostSettings) -> TlsFiles | None:
    """The certificate of this host, None if it has none."""
    files = (settings.tls_certificate, settings.tls_key, settings.tls_authority)
    return TlsFiles(*(Path(file).expanduser() for file in files)) if all(files) else None
