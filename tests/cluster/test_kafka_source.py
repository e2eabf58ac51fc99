"""The Kafka source against a real broker: what is committed, once, whatever happens to the topic."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pytest

from lockstep.clock import wall_us
from lockstep.connect.kafka.specs import kafka
from lockstep.connect.protocols import POSITION, Place
from lockstep.errors import LockstepError
from lockstep.store.dead_letters import DeadLetters
from tests.cluster.broker import Broker
from tests.unit.connect.sealing_for_connect import SOURCE, Sealing

Topics = Callable[..., str]


@pytest.fixture
def sealing(place: Place) -> Iterator[Callable[[Any], Sealing]]:
    made: list[Sealing] = []

    def make(spec: Any) -> Sealing:
        made.append(Sealing(place, spec, f"r{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def numbers(count: int, first: int = 0) -> list[str]:
    return [f'{{"n": {n}}}' for n in range(first, first + count)]


def drained(replica: Sealing, records_max: int = 1000) -> list[int]:
    return [record["n"] for epoch in replica.drain(wall_us(), records_max) for record in epoch]


def test_only_committed_records_are_read_and_holes_end_no_slice(
    broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]
) -> None:
    name = topic(2)
    broker.transaction(name, numbers(5))
    broker.transaction(name, numbers(3, 100), abort=True)
    broker.transaction(name, numbers(5, 5))
    broker.transaction(name, numbers(2, 10), 1)
    still_open = broker.begun(name, numbers(1, 200))
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint"))
    assert sorted(drained(replica, 4)) == list(range(12))
    still_open.commit_transaction(20.0)
    broker.settle(name)
    assert drained(replica) == [200]
    # Another replica reads the same records at the same positions.
    other = sealing(kafka(name, servers=broker.servers, schema="n bigint"))
    head = replica.store.head()
    assert head is not None
    for epoch in range(head.epoch + 1):
        assert other.read(epoch) == replica.read(epoch)


def test_key_headers_and_timestamp_are_columns_on_request(
    broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]
) -> None:
    name = topic()
    broker.send(name, ['{"n": 1}'], key=b"ann", headers=[("trace", b"x"), ("trace", b"y")], timestamp=1_700_000_000_123)
    broker.send(name, [b"{"], key=b"bob")
    broker.send(name, ['{"n": 2}'], key=b"\xff")
    broker.send(name, ['{"n": 3}'])
    columns = {"key_column": "user", "timestamp_column": "came", "headers_column": "headers"}
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint", **columns))  # type: ignore[call-overload]
    [_, rows] = replica.drain(wall_us())
    assert [(row["n"], row["user"], row[POSITION]) for row in rows] == [(1, "ann", 0), (3, None, 3)]
    assert rows[0]["came"].timestamp() == 1_700_000_000.123
    assert rows[0]["headers"] == [{"name": "trace", "value": b"x"}, {"name": "trace", "value": b"y"}]


def test_malformed_records_become_dead_letters_once(
    broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing], place: Place
) -> None:
    name = topic()
    broker.send(name, ["not json", '{"n": 1}', '{"n": "x"}'])
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint"))
    assert drained(replica) == [1]
    replica.read(1)
    letters = list(DeadLetters(place.home, place.job, replica.store).letters())
    assert [(one.source, one.partition, one.offset, one.record) for one in letters] == [
        (SOURCE, f"{name}/0", 0, "not json"),
        (SOURCE, f"{name}/0", 2, '{"n": "x"}'),
    ]
    assert "bigint" in letters[1].error
    stopping = sealing(kafka(name, servers=broker.servers, schema="n bigint", on_bad_record="stop"))
    with pytest.raises(LockstepError, match=f"LS0506 topic {name}, partition 0, offset 0"):
        stopping.read(1)


def test_records_in_avro_are_read_and_a_malformed_one_is_set_aside_alone(
    broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing], place: Place
) -> None:
    schema = {"type": "record", "name": "order", "fields": [{"name": "n", "type": ["null", "long"]}]}
    values = []
    for n in (1, None, 2**63 - 1):
        written = io.BytesIO(b"\x00\x00\x00\x00\x07")  # as Confluent's serializers begin
        written.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(written, schema, {"n": n})
        values.append(written.getvalue())
    name = topic(2)
    broker.send(name, [values[0], values[0] + b"!", values[1]])
    broker.send(name, [b"{}", values[2]], 1)
    spec = kafka(name, servers=broker.servers, format="avro", avro_schema=json.dumps(schema), avro_header="confluent")
    replica, other = sealing(spec), sealing(spec)
    [_, rows] = replica.drain(wall_us())
    assert sorted((row[POSITION], row["n"]) for row in rows if row["n"] is not None) == [(0, 1), (1, 2**63 - 1)]
    assert [row[POSITION] for row in rows if row["n"] is None] == [2]
    assert other.read(1) == replica.read(1)
    letters = list(DeadLetters(place.home, place.job, replica.store).letters())
    assert sorted((one.partition, one.offset, one.error) for one in letters) == [
        (f"{name}/0", 1, "the record ends after 2 bytes, and 1 more follow"),
        (f"{name}/1", 0, "its value does not begin with Confluent's header: a zero and 4 bytes"),
    ]


def test_new_partitions_are_taken_up(broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]) -> None:
    name = topic()
    broker.send(name, numbers(2))
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint", start="latest"))
    replica.seal(wall_us())
    broker.send(name, numbers(2, 2))
    assert drained(replica) == [2, 3]
    broker.add_partitions(name, 2)
    time.sleep(1.1)
    broker.send(name, numbers(2, 4), 1)
    assert drained(replica) == [4, 5]
    head = replica.store.head()
    assert head is not None
    assert dict(head.cut[SOURCE]) == {"0": 4, "1": 2}


def test_ingestion_times_are_the_brokers(broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]) -> None:
    name = topic(2)
    broker.send(name, numbers(1), timestamp=1_700_000_000_000)
    broker.send(name, numbers(1), timestamp=1_700_000_005_000)
    broker.send(name, numbers(1), 1, timestamp=1_700_000_009_000)
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint"))
    replica.seal(wall_us())
    advance = replica.seal(wall_us())
    assert (advance.ingested_oldest_us, advance.ingested_newest_us) == (1_700_000_000_000_000, 1_700_000_009_000_000)
    assert advance.finished


def test_a_trimmed_log_is_named_never_skipped(broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]) -> None:
    name = topic()
    broker.send(name, numbers(10))
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint"))
    replica.seal(wall_us())
    replica.seal(wall_us(), records_max=4)
    broker.trim(name, 0, 6)
    time.sleep(1.1)
    with pytest.raises(LockstepError, match=r"LS0522 .* partition 0, offsets 4 to 5"):
        replica.seal(wall_us())
    with pytest.raises(LockstepError, match=r"LS0522 .* partition 0, offsets 0 to 5"):
        replica.read(1)


def test_a_topic_made_anew_is_not_read_on(broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]) -> None:
    name = topic()
    broker.send(name, numbers(1))
    replica = sealing(kafka(name, servers=broker.servers, schema="n bigint"))
    assert drained(replica) == [0]
    broker.delete(name)
    time.sleep(1.1)
    with pytest.raises(LockstepError, match="LS0524"):
        replica.seal(wall_us())
    broker.make(name, 1, {})
    broker.send(name, numbers(5))
    time.sleep(1.1)
    with pytest.raises(LockstepError, match="LS0525"):
        replica.seal(wall_us())


def test_a_broker_that_is_away_is_waited_for_with_a_clear_message(
    sealing: Callable[[Any], Sealing], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("client", "watch", "reader"):
        monkeypatch.setattr(f"lockstep.connect.kafka.{module}.CALL_S", 1.0)
    monkeypatch.setattr("lockstep.connect.kafka.reader.AWAY_S", 1.0)
    replica = sealing(kafka("t", servers="127.0.0.1:1", schema="n bigint"))
    with pytest.raises(LockstepError, match=r"LS0521 Kafka at 127\.0\.0\.1:1 does not answer"):
        replica.seal(wall_us())
    with pytest.raises(LockstepError, match="LS0521"):
        list(replica.side.read(replica.side.slices({"0": 0}, {"0": 5})[0]))


def test_a_compacted_topic_is_warned_of(broker: Broker, topic: Topics, sealing: Callable[[Any], Sealing]) -> None:
    warned = []
    for policy in ("compact", "delete"):
        replica = sealing(kafka(topic(**{"cleanup.policy": policy}), servers=broker.servers, schema="n bigint"))
        replica.side.advance({}, 10, wall_us())
        warned.append([kind for _, _, kind, _, _ in replica.store.events()].count("kafka-compacted"))
    assert warned == [1, 1], "the store is that of both; only the first one warns"
