"""The Kafka sink against a real broker: each epoch once, whole, in order, whoever is killed when."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.clock import wall_us
from lockstep.connect.kafka.fence import LATENESS_EPOCHS, PATIENCE_S, fence_topic
from lockstep.connect.kafka.specs import kafka
from lockstep.connect.protocols import Output, Place, Publication
from lockstep.connect.registry import sink_side, source_side
from lockstep.connect.sinks.kafka import KafkaSinkSide
from lockstep.errors import LockstepError, StoreError
from lockstep.store.protocols import Holder
from lockstep.store.sqlite_store import open_store
from tests.cluster.broker import Broker
from tests.cluster.publishing import WINDOWS, with_replicas
from tests.unit.connect.sinks_for_connect import SCHEMA, publish, rows_of, wanted

Topics = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]


def opened(broker: Broker, topic: str, place: Place, **options: Any) -> KafkaSinkSide:
    side = sink_side(kafka(topic, servers=broker.servers, **options), "alerts", place)
    assert isinstance(side, KafkaSinkSide)
    side.open(SCHEMA)
    return side


def expected(epochs: int) -> list[Any]:
    return [row for epoch in range(epochs) for row in rows_of(epoch).to_pylist()]


def test_one_replica_writes_and_the_other_finds_it_written(broker: Broker, topic: Topics, place: Place) -> None:
    name = topic()
    first, second = (opened(broker, name, place) for _ in range(2))
    for epoch in range(4):
        assert publish(first, epoch, Holder("r0", 1)).by == "r0.1"
        held = publish(second, epoch, Holder("r1", 1))
        assert (held.by, held.digest) == ("r0.1", f"digest-{epoch}")
    assert broker.committed(name) == expected(4)
    assert (first.last_published(), second.last_published()) == (3, 3)
    assert second.publication(9) is None
    first.close()
    second.close()


def test_who_does_not_appear_is_replaced_and_goes_on_beside(broker: Broker, topic: Topics, place: Place) -> None:
    name = topic()
    first, second = (opened(broker, name, place) for _ in range(2))
    publish(first, 0, Holder("r0", 1))
    publish(second, 0, Holder("r1", 1))
    # The first one hangs: the second takes over, and writes without waiting from then on.
    began_s = time.monotonic()
    assert publish(second, 1, Holder("r1", 1)).by == "r1.1"
    assert publish(second, 2, Holder("r1", 1)).by == "r1.1"
    print(f"taken over in {time.monotonic() - began_s:.2f} s")
    # The first one comes back: its producer is fenced, which is no error. It does not take the topic back for that.
    held = second._producer
    assert publish(first, 1, Holder("r0", 1)).by == "r1.1"
    assert publish(first, 2, Holder("r0", 1)).by == "r1.1"
    assert publish(second, 3, Holder("r1", 1)).by == "r1.1" and second._producer is held, "it was not fenced"
    assert publish(first, 3, Holder("r0", 1)).by == "r1.1"
    assert writers(place) == ["r1.1 writes topic " + name + " from epoch 1 on"], "once"
    assert broker.committed(name) == expected(4)
    first.close()
    second.close()


def writers(place: Place) -> list[str]:
    """Who said that it took a topic after the start."""
    store = open_store(place.home, place.job)
    told = [text.partition(": ")[2] for _, _, kind, _, text in store.events() if kind == "kafka-writer"]
    store.close()
    return told


def test_a_transaction_that_its_killed_writer_left_open_costs_no_wait(
    broker: Broker, topic: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client by itself asks for the id again after 0.5 s: each of these would take longer than that."""
    taken_s = []
    for number in range(3):
        place = with_replicas(Place(tmp_path / str(number), tmp_path / str(number) / ".lockstep", "job"))
        name = topic()
        assert writer(broker, name, place, "fence sent").wait(60) == -signal.SIGKILL
        side = opened(broker, name, place)
        assert side.last_published() == 1
        began_s = time.monotonic()
        side._take_over()
        taken_s.append(time.monotonic() - began_s)
        assert publish(side, 2, Holder("r1", 1)).by == "r1.1"
        assert broker.committed(name) == expected(3)
        side.close()
    with capsys.disabled():
        print(f"\n  taken from a killed writer in {', '.join(f'{one * 1000:.0f}' for one in taken_s)} ms")
    assert min(taken_s) < 0.5


def test_a_writer_that_is_never_late_is_waited_for_less(broker: Broker, topic: Topics, place: Place) -> None:
    name = topic()
    first, second = (opened(broker, name, place) for _ in range(2))
    for epoch in range(LATENESS_EPOCHS):
        assert second._lateness.patience_s == PATIENCE_S
        publish(first, epoch, Holder("r0", 1))
        publish(second, epoch, Holder("r1", 1))
    assert second._lateness.patience_s < PATIENCE_S
    assert publish(second, LATENESS_EPOCHS, Holder("r1", 1)).by == "r1.1"
    assert second._lateness.patience_s == PATIENCE_S, "whoever takes it from here is watched anew"
    assert broker.committed(name) == expected(LATENESS_EPOCHS + 1)
    first.close()
    second.close()


def test_one_that_was_retired_while_it_was_cut_off_shuts_nobody_out(
    broker: Broker, topic: Topics, place: Place
) -> None:
    name = topic()
    first, second = (opened(broker, name, place) for _ in range(2))
    publish(first, 0, Holder("r0", 1))
    store = open_store(place.home, place.job)
    store.retire("r1")
    store.close()
    with pytest.raises(StoreError, match="LS0405"):
        publish(second, 1, Holder("r1", 1))
    held = first._producer
    assert publish(first, 1, Holder("r0", 1)).by == "r0.1" and first._producer is held, "it was not fenced"
    assert broker.committed(name) == expected(2)
    first.close()
    second.close()


def test_a_writer_killed_in_any_window_leaves_each_epoch_once(broker: Broker, topic: Topics, tmp_path: Path) -> None:
    places = {
        window: with_replicas(Place(tmp_path / window, tmp_path / window / ".lockstep", "job")) for window in WINDOWS
    }
    names = {window: topic() for window in WINDOWS}
    # Side by side: a process takes longer to start than to publish.
    writers = {window: writer(broker, names[window], places[window], window) for window in WINDOWS}
    for window, place in places.items():
        assert writers[window].wait(60) == -signal.SIGKILL
        side = opened(broker, names[window], place)
        by = [publish(side, epoch, Holder("r1", 1)).by for epoch in range(4)]
        assert by == ["r0.1", "r0.1", "r0.1" if window == "committed" else "r1.1", "r1.1"], window
        assert broker.committed(names[window]) == expected(4), window
        side.close()


def writer(broker: Broker, topic: str, place: Place, window: str) -> subprocess.Popen[bytes]:
    """A process that is killed in a window of epoch 2."""
    place.project.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.cluster.publishing", broker.servers, topic, str(place.project), window]
    return subprocess.Popen(command, cwd=ROOT)


def test_replicas_that_race_for_every_epoch(
    broker: Broker, topic: Topics, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.connect.kafka.fence.PATIENCE_S", 0.02)
    name, epochs = topic(), 8
    by: dict[str, list[str]] = {"r0": [], "r1": []}

    def run(replica: str) -> None:
        side, turn, other = opened(broker, name, place), int(replica[1]), "r1" if replica == "r0" else "r0"
        for epoch in range(epochs):
            while epoch % 4 == 2 * turn and len(by[other]) <= epoch:
                time.sleep(0.005)  # late: whoever does not hold the topic has to take it
            by[replica].append(publish(side, epoch, Holder(replica, 1)).by)
        side.close()

    threads = [threading.Thread(target=run, args=(replica,)) for replica in by]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert by["r0"] == by["r1"]
    assert len(by["r0"]) == epochs
    assert len(writers(place)) > 1, "they took turns"
    assert broker.committed(name) == expected(epochs)


def test_rows_of_a_key_keep_their_order_in_one_partition(broker: Broker, topic: Topics, place: Place) -> None:
    name = topic(4)
    side = opened(broker, name, place, key="s")
    rows = pa.table({"n": list(range(100)), "s": [f"k{n % 7}" for n in range(100)]}, SCHEMA)
    side.publish(wanted(0, rows=100), Output(SCHEMA, rows), Holder("r0", 1))
    found = broker.committed(name)
    for key in range(7):
        assert [row["n"] for row in found if row["s"] == f"k{key}"] == list(range(key, 100, 7))
    assert len(found) == 100
    side.close()


def test_another_job_or_another_run_is_refused(broker: Broker, topic: Topics, place: Place, tmp_path: Path) -> None:
    name = topic()
    opened(broker, name, place).close()
    opened(broker, name, place).close()
    with pytest.raises(LockstepError, match="LS0503"):
        opened(broker, name, Place(tmp_path, place.home, "another"))
    with pytest.raises(LockstepError, match=r"LS0503 .* another run"):
        opened(broker, name, Place(tmp_path, tmp_path / "elsewhere", "job"))
    with pytest.raises(LockstepError, match="LS0512"):
        opened(broker, name, place, key="s")
    assert broker.committed(fence_topic(name))[0]["job"] == "job"


@pytest.mark.long
def test_a_broker_that_is_killed_and_comes_back_is_waited_for(broker: Broker, topic: Topics, place: Place) -> None:
    if broker.node is None:
        pytest.skip("this broker is not ours to kill")
    name = topic()
    side = opened(broker, name, place)
    publish(side, 0)
    source = source_side(kafka(name, servers=broker.servers, schema="n bigint"), place, "numbers")
    begun = source.advance(source.start(), 100, wall_us()).positions
    broker.node.kill()
    published: list[Publication] = []
    waiting = threading.Thread(target=lambda: published.append(publish(side, 1)))
    waiting.start()
    time.sleep(1.0)
    assert waiting.is_alive(), "it waits"
    broker.node.start()
    broker.node.wait()
    waiting.join(60)
    assert [one.by for one in published] == ["r0.1"]
    assert broker.committed(name) == expected(2)
    end = source.advance(begun, 100, wall_us()).positions
    batches = [batch for piece in source.slices(begun, end) for batch in source.read(piece)]
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == [row["n"] for row in expected(2)]
    source.close()
    side.close()


def test_topics_that_are_not_there_are_made_and_waited_for(broker: Broker, place: Place) -> None:
    name = f"made-{uuid.uuid4().hex[:12]}"
    side = opened(broker, name, place)
    publish(side, 0)
    assert broker.committed(name) == expected(1)
    side.close()
