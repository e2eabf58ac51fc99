"""A snapshot goes from one host to another over real HTTP: it comes whole and as it was sent, or not at all."""

from __future__ import annotations

import os
import random
import shutil
import time
import tracemalloc
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import check_state, standing
from lockstep.runtime.state.checksums import sums_of
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.runtime.transfer import receiving
from lockstep.runtime.transfer.client import HostClient
from lockstep.runtime.transfer.manifest import Manifest
from lockstep.runtime.transfer.offers import Offers
from lockstep.runtime.transfer.receiving import Fetched, Pace, ask_for, manifest_of, receive
from tests.unit.transfer.hosts_for_transfer import (
    ENVIRONMENT,
    PLAN,
    TOKEN,
    WANTED,
    FakePeers,
    Server,
    serving,
    tree,
    write_replica,
)


class Hosts:
    """A host with a replica, and another one that wants its snapshot."""

    def __init__(self, peers: FakePeers, offers: Offers, server: Server, client: HostClient, folder: Path) -> None:
        self.peers, self.offers, self.server, self.client = peers, offers, server, client
        self.target = folder / "there" / "seed"

    def fetch(self, offer: str | None = None, check: Callable[[Manifest], None] = lambda _: None) -> Manifest:
        return receive(self.client, offer or ask_for(self.client, WANTED), self.target, check)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    peers = write_replica(tmp_path / "here" / "r0")
    (tmp_path / "there").mkdir()
    with (
        Offers(tmp_path / "offers", peers) as offers,
        serving(offers) as server,
        HostClient(server.address, TOKEN, timeout_s=30.0, patience_s=30.0) as client,
    ):
        yield Hosts(peers, offers, server, client, tmp_path)


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_arrives_is_what_a_copy_on_one_host_is_for_all_stages(hosts: Hosts, tmp_path: Path) -> None:
    manifest = hosts.fetch()
    assert hosts.peers.peer is not None
    for folder in hosts.peers.peer.checkpoints:
        copy_checkpoint(folder, tmp_path / "reference" / folder.name)
    assert tree(hosts.target) == tree(tmp_path / "reference")
    assert [(stage.folder, stage.batch, stage.epoch) for stage in manifest.stages] == [
        ("checkpoint", 5, 5),
        ("checkpoint-2", 6, 6),
    ]
    assert (manifest.plan, manifest.version, manifest.environment) == (PLAN, "v1", ENVIRONMENT)
    for stage in manifest.stages:
        at = standing(hosts.target / stage.folder)
        assert at is not None and (at.batch, at.epoch) == (stage.batch, stage.epoch)
        check_state(hosts.target / stage.folder, stage.batch)
    assert [path.name for path in hosts.target.parent.iterdir()] == ["seed"], "nothing else is left"
    assert hosts.server.network.connections == 1, "one connection is enough"
    _until(lambda: not any(path.is_dir() and any(path.iterdir()) for path in (tmp_path / "offers").iterdir()))


@pytest.mark.parametrize("seed", range(8))
def test_a_connection_that_breaks_at_any_byte_is_taken_up_there(hosts: Hosts, tmp_path: Path, seed: int) -> None:
    assert hosts.peers.peer is not None
    large = hosts.peers.peer.checkpoints[0] / "state/0/0/5.changelog"
    chosen = random.Random(seed)
    large.write_bytes(chosen.randbytes(900_000))
    sums_of(large).unlink()
    offer = ask_for(hosts.client, WANTED)
    manifest_of(hosts.client, offer)
    network = hosts.server.network
    network.sent, network.cuts = 0, [chosen.randrange(140_000) for _ in range(6)]
    hosts.fetch(offer)
    copy_checkpoint(hosts.peers.peer.checkpoints[0], tmp_path / "reference" / "checkpoint")
    expected = tree(tmp_path / "reference")
    assert {name: data for name, data in tree(hosts.target).items() if name.startswith("checkpoint/")} == expected
    assert not network.cuts, "all of them happened"
    assert any(asked != "bytes=0-" for asked in network.ranges), "it went on from a byte in the middle"


def test_a_transfer_that_was_given_up_goes_on_from_what_has_come(hosts: Hosts) -> None:
    offer = ask_for(hosts.client, WANTED)
    _, listed = manifest_of(hosts.client, offer)
    network = hosts.server.network
    network.sent, network.cuts = 0, [len(listed) + 1_000, *[0] * 1000]
    with (
        HostClient(hosts.server.address, TOKEN, timeout_s=5.0, patience_s=0.5) as impatient,
        pytest.raises(RunError) as caught,
    ):
        receive(impatient, offer, hosts.target, lambda _: None)
    assert caught.value.code == "LS0660"
    assert not hosts.target.exists()
    fetched = len(network.ranges)
    network.cuts, network.ranges = [], []
    manifest = hosts.fetch(offer)
    assert 0 < len(network.ranges) < len(manifest.files), "the files that had come were not fetched again"
    assert fetched > 1
    assert tree(hosts.target)


def test_a_byte_that_flips_on_the_way_is_mended_and_one_that_stays_wrong_is_named(hosts: Hosts) -> None:
    flips = [1]

    def flip(data: bytes) -> bytes:
        if data.startswith(b"change 6") and flips:
            flips.pop()
            return b"c" + bytes([data[1] ^ 4]) + data[2:]
        return data

    hosts.server.network.change = flip
    hosts.fetch()
    assert not flips and (hosts.target / "checkpoint/state/0/0/6.changelog").read_bytes() == b"change 6"
    shutil.rmtree(hosts.target)
    flips.extend([1] * 100)
    with pytest.raises(RunError, match=r"checkpoint/state/0/0/6\.changelog of a snapshot") as caught:
        hosts.fetch()
    assert caught.value.code == "LS0662"
    assert not hosts.target.exists(), "nothing of it is used"


def test_nobody_is_seeded_from_a_retired_peer(hosts: Hosts) -> None:
    hosts.peers.peer = None
    with pytest.raises(RunError, match="it was retired") as caught:
        hosts.fetch()
    assert caught.value.code == "LS0661"


def test_nobody_is_seeded_from_what_another_start_of_the_peer_has_left(hosts: Hosts, tmp_path: Path) -> None:
    """The replica lives elsewhere; this host has the folder that it left, or a zombie writes in it."""
    old = write_replica(tmp_path / "old" / "r0", incarnation=3)
    assert hosts.peers.peer is not None and old.peer is not None
    hosts.peers.peer = type(old.peer)(hosts.peers.peer.holder, old.peer.checkpoints, ENVIRONMENT)
    with pytest.raises(RunError, match=r"the checkpoint on that host is of r0\.3") as caught:
        hosts.fetch()
    assert caught.value.code == "LS0661"


def test_a_peer_that_is_retired_while_it_is_copied_is_refused(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(source: Path, target: Path) -> object:
        hosts.peers.peer = None
        return copy_checkpoint(source, target)

    monkeypatch.setattr("lockstep.runtime.transfer.offers.copy_checkpoint", copy)
    with pytest.raises(RunError, match="it was retired"):
        hosts.fetch()


def test_what_the_reader_refuses_is_asked_again_at_the_end_and_nothing_is_put_in_place(hosts: Hosts) -> None:
    asked: list[int] = []

    def check(manifest: Manifest) -> None:
        asked.append(len(manifest.files))
        if len(asked) > 1:
            raise RunError("LS0661", "retired meanwhile")

    with pytest.raises(RunError, match="retired meanwhile"):
        hosts.fetch(check=check)
    assert len(asked) == 2 and not hosts.target.exists()


def test_a_host_that_dies_when_all_has_come_takes_nothing_away(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = HostClient.ask

    def dying(self: HostClient, method: str, path: str, *rest: object, **named: object) -> object:
        if method == "DELETE":
            monkeypatch.setattr(hosts.client._connection, "port", 9)
            hosts.client.close()
        return ask(self, method, path, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(HostClient, "ask", dying)
    began_s = time.monotonic()
    hosts.fetch()
    assert hosts.target.exists() and time.monotonic() - began_s < 25, "it was not asked for the whole patience of 30 s"


def test_whatever_keeps_a_snapshot_from_being_taken_is_told_to_the_reader(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: Path, target: Path) -> object:
        raise ValueError("no such thing")

    monkeypatch.setattr("lockstep.runtime.transfer.offers.copy_checkpoint", broken)
    with pytest.raises(RunError, match="ValueError: no such thing") as caught:
        hosts.fetch()
    assert caught.value.code == "LS0660"


def test_a_wrong_token_and_none_are_refused_and_no_body_is_read(hosts: Hosts) -> None:
    for token in ("x" * 43, None, TOKEN[:-1]):
        stranger = HostClient(hosts.server.address, token, timeout_s=5.0, patience_s=1.0)
        with pytest.raises(RunError) as caught:
            ask_for(stranger, WANTED)
        assert caught.value.code == "LS0667"
        assert TOKEN not in str(caught.value)


def test_an_offer_that_nobody_asks_for_expires_and_its_folder_goes(tmp_path: Path) -> None:
    now = [0.0]
    peers = write_replica(tmp_path / "here" / "r0")
    with (
        Offers(tmp_path / "offers", peers, lease_s=100.0, now_s=lambda: now[0]) as offers,
        serving(offers) as server,
        HostClient(server.address, TOKEN, timeout_s=30.0, patience_s=30.0) as client,
    ):
        offer = ask_for(client, WANTED)
        manifest_of(client, offer)
        (copied,) = (tmp_path / "offers").glob(f"*/{offer}")
        now[0] = 99.9
        manifest_of(client, offer)
        now[0] = 199.8
        assert manifest_of(client, offer), "whoever asks keeps it"
        now[0] = 299.9
        with pytest.raises(RunError) as caught:
            receive(client, offer, tmp_path / "seed", lambda _: None)
        assert caught.value.code == "LS0665" and copied.exists()


def test_the_keeper_of_an_offer_removes_it_when_its_lease_is_over(tmp_path: Path) -> None:
    with Offers(tmp_path / "offers", write_replica(tmp_path / "r0"), lease_s=0.05) as offers:
        offer = offers.ask("0" * 32, WANTED)
        assert offer.keeper is not None
        offer.keeper.join(60)
        assert not offer.keeper.is_alive() and not offer.folder.exists()
        assert offer.manifest is not None, "it was there"


def test_what_a_killed_server_left_is_removed_by_the_next_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    peers = write_replica(tmp_path / "here" / "r0")
    dead, living = Offers(tmp_path / "offers", peers), Offers(tmp_path / "offers", peers)
    for offers in (dead, living):
        offer = offers.ask("0" * 32, WANTED)
        _until(lambda offer=offer: offer.manifest is not None)  # type: ignore[misc]
    dead._held.close()  # what the system does when a process dies
    third = Offers(tmp_path / "offers", peers)
    assert len(list((tmp_path / "offers").glob("*/" + "0" * 32))) == 1
    assert living.find("0" * 32).file(0) is not None
    third.close()
    living.close()


def test_a_host_offers_only_so_many_at_once_and_the_reader_asks_again(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        hosts.offers.ask(f"{number:032x}", WANTED)
    with (
        HostClient(hosts.server.address, TOKEN, timeout_s=5.0, patience_s=0.3) as impatient,
        pytest.raises(RunError) as caught,
    ):
        ask_for(impatient, WANTED)
    assert caught.value.code == "LS0666"
    waits: list[float] = []
    pause = time.sleep

    def end_one(seconds: float) -> None:
        waits.append(seconds)
        hosts.offers.end(f"{1:032x}")
        pause(seconds)

    monkeypatch.setattr("lockstep.runtime.transfer.client.time.sleep", end_one)
    hosts.fetch()
    assert waits, "it had to wait for one to end"


def test_a_full_disk_is_refused_on_both_sides_before_anything_is_written(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    offer = ask_for(hosts.client, WANTED)
    manifest_of(hosts.client, offer)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**12, 10**12, 10**6))
    with pytest.raises(RunError, match=r"room for a snapshot in \S*/there/") as caught:
        hosts.fetch(offer)
    assert caught.value.code == "LS0664"
    assert not hosts.server.network.ranges, "no file was asked for"
    with pytest.raises(RunError, match="offers") as caught:
        hosts.fetch()
    assert caught.value.code == "LS0664"


def test_a_large_file_passes_through_little_memory(hosts: Hosts) -> None:
    size = 300 * 2**20
    assert hosts.peers.peer is not None
    large = hosts.peers.peer.checkpoints[0] / "state/0/0/5.changelog"
    os.truncate(large, size)
    sums_of(large).unlink()
    tracemalloc.start()
    try:
        hosts.fetch()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (hosts.target / "checkpoint/state/0/0/5.changelog").stat().st_size == size
    assert peak < 16 * 2**20


def test_a_long_transfer_says_how_far_it_is(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "TELL_INTERVAL_S", 0.0)
    told: list[Fetched] = []
    manifest = receive(hosts.client, ask_for(hosts.client, WANTED), hosts.target, lambda _: None, tell=told.append)
    assert [one.done_bytes for one in told] == sorted(one.done_bytes for one in told)
    assert (told[-1].done_bytes, told[-1].all_bytes) == (manifest.size, manifest.size)


def test_a_pace_lets_so_many_bytes_pass_in_a_second() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(1000, lambda: now[0], sleep)
    for _ in range(30):
        now[0] += 0.01  # the network's own time counts
        pace.took(100)
    assert now[0] == pytest.approx(3.01, abs=0.3)


def test_a_host_that_is_not_there_is_given_up_in_time(tmp_path: Path) -> None:
    gone = HostClient("http://127.0.0.1:9", TOKEN, timeout_s=1.0, patience_s=0.3)
    began_s = time.monotonic()
    with pytest.raises(RunError, match="ConnectionRefused") as caught:
        ask_for(gone, WANTED)
    assert caught.value.code == "LS0660" and time.monotonic() - began_s < 5
