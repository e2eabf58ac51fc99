"""A replica chooses where a peer's snapshot comes from, and takes none that does not fit it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockstep.config import HostSettings, load_settings
from lockstep.errors import EnvironmentError_, RunError
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.checkpoint import Standing, read_fingerprint, write_fingerprint, written_by
from lockstep.runtime.state.folders import CheckpointFolders, SnapshotsHere, checkpoint_folders
from lockstep.runtime.transfer.client import HostClient
from lockstep.runtime.transfer.manifest import Manifest, StageStanding
from lockstep.runtime.transfer.offers import Offers, PeersOfStore
from lockstep.runtime.transfer.receiving import Pace
from lockstep.runtime.transfer.snapshots import SnapshotsAnywhere, SnapshotsElsewhere, Starting, connected
from lockstep.security import TlsFiles
from lockstep.store.protocols import Holder, Progress, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint
from tests.unit.transfer.hosts_for_transfer import PLAN, TOKEN, WANTED, Server, certificates, serving, tree

JOB = "job"


class Cluster:
    """Two hosts with folders of their own and one store; r0 lives on the first, r1 starts on the second."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.there, self.here = folder / "host1", folder / "host2"
        self.store: Store = open_store(folder / "store", JOB)
        self.store.put_fact_if_absent("environment", "cafe")
        self.r0, self.r1 = self.store.begin("r0", 1), self.store.begin("r1", 2)
        self.store.report(Progress("r0", self.r0.incarnation, 1, "running", epoch=5))
        for number, path in enumerate(checkpoint_folders(replica_folder(self.there, JOB, "r0"), 2)):
            write_checkpoint(path, 5 + number, base=4)
            write_fingerprint(path, PLAN, "v1", self.r0.incarnation)
        peers = PeersOfStore(self.there, lambda job: self.store if job == JOB else None)
        offers = stack.enter_context(Offers(self.there / "offers", peers))
        self.server: Server = stack.enter_context(serving(offers))
        replica_folder(self.here, JOB, "r1").mkdir(parents=True)

    def folders(self, version: str = "v1", plan: dict[str, object] = PLAN, stages: int = 2) -> CheckpointFolders:
        folder = replica_folder(self.here, JOB, "r1")
        elsewhere = SnapshotsElsewhere(
            lambda peer: HostClient(self.server.address, TOKEN, timeout_s=30.0, patience_s=30.0),
            self.store,
            Starting(JOB, "r1", stages, plan, version),
            folder,
            Pace(),
        )
        here = SnapshotsHere(lambda replica: replica_folder(self.here, JOB, replica), stages)
        anywhere = SnapshotsAnywhere(here, elsewhere, lambda peer: peer == "r0")
        return CheckpointFolders(folder, stages, anywhere, self.store, self.r1, plan, version)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = Cluster(tmp_path, stack)
        yield made
        made.store.close()


def test_all_stages_of_a_peer_on_another_host_are_put_in_place_and_belong_to_the_new_replica(cluster: Cluster) -> None:
    folders = cluster.folders()
    assert [folders.copy(stage, "r0") for stage in range(2)] == [5, 6]
    for stage in range(2):
        folders.swap(stage, 5, keep_old=False)
    for stage, (mine, theirs) in enumerate(
        zip(folders.folders, checkpoint_folders(replica_folder(cluster.there, JOB, "r0"), 2), strict=True)
    ):
        found = folders.find(stage)
        assert found is not None and found.at == Standing(5 + stage, 5 + stage, 5 + stage) and not found.damage
        assert (read_fingerprint(mine), written_by(mine)) == ((PLAN, "v1"), cluster.r1.incarnation)
        own = {"lockstep.json", "metadata"}
        assert {name: data for name, data in tree(mine).items() if name not in own} == {
            name: data for name, data in tree(theirs).items() if name not in own
        }
    assert sorted(path.name for path in folders.folders[0].parent.iterdir()) == ["checkpoint", "checkpoint-2"]


def test_a_peer_of_this_host_is_copied_from_its_folder_and_nothing_is_asked(cluster: Cluster) -> None:
    for path in checkpoint_folders(replica_folder(cluster.here, JOB, "r2"), 2):
        write_checkpoint(path, 9)
        write_fingerprint(path, PLAN, "v1")
    assert cluster.folders().copy(0, "r2") == 9
    assert cluster.server.network.connections == 0


def test_nobody_is_seeded_from_a_retired_peer(cluster: Cluster) -> None:
    cluster.store.retire("r0")
    with pytest.raises(RunError, match="retired") as caught:
        cluster.folders().copy(0, "r0")
    assert caught.value.code == "LS0661"


def test_a_peer_that_is_retired_while_its_snapshot_is_fetched_seeds_nobody(cluster: Cluster) -> None:
    def retire(data: bytes) -> bytes:
        if data.startswith(b"change"):
            cluster.store.retire("r0")
        return data

    cluster.server.network.change = retire
    folders = cluster.folders()
    with pytest.raises(RunError, match="it was retired meanwhile"):
        folders.copy(0, "r0")
    assert not folders.folders[0].with_name("checkpoint.new").exists()


def test_a_peer_with_another_start_elsewhere_is_no_longer_the_one_that_was_asked_for(cluster: Cluster) -> None:
    again = cluster.store.begin("r0", 3)
    cluster.store.report(Progress("r0", again.incarnation, 3, "running", epoch=9))
    with pytest.raises(RunError, match=f"the checkpoint on that host is of {Holder('r0', cluster.r0.incarnation)}"):
        cluster.folders().copy(0, "r0")


@pytest.mark.parametrize(
    ("differing", "reason"),
    [
        ({"plan": {**PLAN, "sources": ["clicks"]}}, "the sources were: logins; they are: clicks"),
        ({"version": "v2"}, "another version of the job's code"),
        ({"stages": 1}, "it has 2 stages and not 1"),
    ],
)
def test_a_peer_that_does_not_fit_is_refused_before_a_file_is_fetched(
    cluster: Cluster, differing: dict[str, object], reason: str
) -> None:
    with pytest.raises(RunError, match=reason) as caught:
        cluster.folders(**differing).copy(0, "r0")  # type: ignore[arg-type]
    assert caught.value.code == "LS0661"
    assert not cluster.server.network.ranges


def test_a_plan_that_is_none_is_refused() -> None:
    sent = Manifest(WANTED, "cafe", {"format": 1}, "v1", (StageStanding("checkpoint", 5, 5),), ())
    assert Starting(JOB, "r1", 1, PLAN, "v1").misfits(sent, WANTED, "cafe") == [
        "its plan is none that this release knows"
    ]


def test_another_environment_is_refused(cluster: Cluster) -> None:
    """Two stores, by mistake: each has the environment that its job began with."""
    fact = cluster.store.fact
    answers = iter(["beef"])
    cluster.store.fact = lambda key: next(answers, fact(key))  # type: ignore[method-assign]
    with pytest.raises(RunError, match="the environments differ: beef there, cafe here"):
        cluster.folders().copy(0, "r0")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates; Debian's package openssl")
def test_hosts_with_certificates_of_one_authority_talk_over_tls_and_others_do_not(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, foreign = certificates(tmp_path / "ours"), certificates(tmp_path / "foreign")
    peers = PeersOfStore(cluster.there, lambda job: cluster.store)
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    with Offers(tmp_path / "offers", peers) as offers, serving(offers, TOKEN, ours.for_serving()) as server:

        def settings(files: TlsFiles) -> HostSettings:
            names = {"tls_certificate": files.certificate, "tls_key": files.key, "tls_authority": files.authority}
            return HostSettings(**{name: str(path) for name, path in names.items()})  # type: ignore[arg-type]

        with connected(server.address, settings(ours)) as known:
            assert known.ask("DELETE", f"/seeding/offers/{'0' * 32}") == (204, b"")
        with connected(server.address, settings(foreign)) as stranger, pytest.raises(RunError, match="CERTIFICATE"):
            stranger.ask("DELETE", f"/seeding/offers/{'0' * 32}")
        ca_only = foreign.for_asking()
        ca_only.load_verify_locations(str(ours.authority))
        with HostClient(server.address, TOKEN, ca_only, patience_s=0.3) as stranger, pytest.raises(RunError) as caught:
            stranger.ask("DELETE", f"/seeding/offers/{'0' * 32}")
        assert caught.value.code == "LS0660", "the server wants a certificate of its own authority, too"


def test_settings_of_tls_come_together(tmp_path: Path) -> None:
    (tmp_path / "lockstep.toml").write_text('[hosts]\ntls_key = "key.pem"\n', encoding="utf-8")
    with pytest.raises(EnvironmentError_, match="given together"):
        load_settings(tmp_path)


@pytest.mark.parametrize("address", ["host:7000", "ftp://host", "http://", "http://host:7000/path"])
def test_what_is_no_address_of_a_host_is_refused(address: str) -> None:
    with pytest.raises(EnvironmentError_, match="LS0034"):
        HostClient(address, TOKEN)
