"""Cuts derived from a topic: the same for everybody, found again later, compared with a plain walk over the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Message

from lockstep.clock import wall_us
from lockstep.connect.kafka.heartbeats import HEADER, is_heartbeat
from lockstep.connect.kafka.order import TopicOrder, TopicStart, topic_start
from lockstep.connect.kafka.specs import KafkaSource, kafka
from lockstep.connect.kafka.watch import TopicWatch
from lockstep.connect.protocols import Advance, Place
from lockstep.connect.sources.kafka import KafkaSide
from lockstep.errors import ConnectError
from lockstep.plan.schema import parse_schema
from lockstep.store.protocols import Positions
from tests.cluster.broker import Broker

STAMPED = {"message.timestamp.type": "LogAppendTime"}
INTERVAL_MS = 200
MANY = 1_000_000


def spec_of(broker: Broker, topic: str) -> KafkaSource:
    return KafkaSource(topic, broker.servers, parse_schema("n bigint"))


def plain_cut(log: list[Message], start: Mapping[str, int], bound_ms: int) -> dict[str, int]:
    """Per partition the offset of the first record that was stamped at or after the bound."""
    found = {}
    for name in start:
        mine = [one for one in log if str(one.partition()) == name]
        reached = [one.offset() or 0 for one in mine if one.timestamp()[1] >= bound_ms]
        assert reached, f"partition {name} has not reached {bound_ms}"
        found[name] = reached[0]
    return found


def committed_below(log: list[Message], positions: Mapping[str, int]) -> dict[str, int]:
    """How many records each partition has before its position."""
    return {
        name: sum(str(one.partition()) == name and (one.offset() or 0) < at for one in log)
        for name, at in positions.items()
    }


@pytest.fixture
def order() -> Iterator[Callable[[KafkaSource, TopicStart], TopicOrder]]:
    made: list[TopicOrder] = []

    def make(spec: KafkaSource, start: TopicStart) -> TopicOrder:
        made.append(TopicOrder(spec, start, grace_s=0.01))
        return made[-1]

    yield make
    for one in made:
        one.close()


def derived(order: TopicOrder, since: Positions, bound_ms: int, records_max: int = MANY) -> Advance:
    deadline_s = time.monotonic() + 20
    while (found := order.advance(since, bound_ms, records_max)) is None:
        assert time.monotonic() < deadline_s, f"{bound_ms} is not reached"
        time.sleep(0.005)
    return found


def test_all_derive_the_cuts_that_stand_in_the_log(
    broker: Broker, topic: Callable[..., str], order: Callable[[KafkaSource, TopicStart], TopicOrder]
) -> None:
    name = topic(3, **STAMPED)
    spec = spec_of(broker, name)
    start, begun_ms = topic_start(spec), wall_us() // 1000
    first, second = order(spec, start), order(spec, start)
    cuts: list[Advance] = []
    for epoch in range(1, 8):
        # Partition 2 is quiet, partition 1 in some epochs.
        broker.send(name, [json.dumps({"n": epoch})] * 5, 0)
        if epoch % 3 == 0:
            broker.transaction(name, [json.dumps({"n": epoch})] * 2, 1)
            broker.transaction(name, [json.dumps({"n": -1})], 1, abort=True)
        since = cuts[-1].positions if cuts else start.positions
        cuts.append(derived(first, since, begun_ms + epoch * INTERVAL_MS))
    log = broker.messages(name)
    before: Positions = start.positions
    for epoch, cut in enumerate(cuts, start=1):
        bound_ms = begun_ms + epoch * INTERVAL_MS
        plain = plain_cut(log, start.positions, bound_ms)
        # A record that was aborted, or the mark of an abort, may be the first that was stamped after the bound.
        assert committed_below(log, cut.positions) == committed_below(log, plain)
        again = derived(second, before, bound_ms)
        assert (again.positions, again.records) == (cut.positions, cut.records), "who comes later finds the same"
        before = cut.positions
    quiet = [one for one in log if one.partition() == 2]
    assert quiet and all(is_heartbeat(one) for one in quiet), "a quiet partition has heartbeats alone"
    # At most a few each epoch: one at its bound, and another if that was stamped a little early.
    assert len(quiet) <= 3 * len(cuts)
    only_heartbeats = [one for one in cuts if one.records == 0]
    assert all(one.ingested_oldest_us is None for one in only_heartbeats)


def test_an_epoch_of_heartbeats_has_no_records(
    broker: Broker, topic: Callable[..., str], order: Callable[[KafkaSource, TopicStart], TopicOrder]
) -> None:
    name = topic(2, **STAMPED)
    spec = spec_of(broker, name)
    start = topic_start(spec)
    one = order(spec, start)
    now_ms = wall_us() // 1000
    first = derived(one, start.positions, now_ms)
    later = derived(one, first.positions, now_ms + INTERVAL_MS)
    assert later.positions != first.positions
    assert (later.records, later.ingested_oldest_us) == (0, None)


@pytest.mark.parametrize("ahead_s", [-3, 0, 3])
def test_bounds_are_looked_at_by_the_brokers_clock(broker: Broker, topic: Callable[..., str], ahead_s: int) -> None:
    """The clock here is behind or ahead of the broker's, and is read late: records come all the time meanwhile."""
    name = topic(1, **STAMPED)
    spec = spec_of(broker, name)
    one = TopicOrder(spec, topic_start(spec), grace_s=0.01, clock=lambda: wall_us() + ahead_s * 1_000_000)
    at: Positions = {"0": 0}
    late_s: list[float] = []
    for _ in range(6):
        broker.send(name, ["{}"] * 3)
        bound_ms = wall_us() // 1000 + INTERVAL_MS
        while (early_s := one.due_s(bound_ms)) > 0:
            time.sleep(min(early_s, 1.0))
        late_s.append(wall_us() / 1e6 - bound_ms / 1000)
        at = derived(one, at, bound_ms).positions
    one.close()
    # The first heartbeats tell how the clocks differ; from then on it is milliseconds, on a busy machine more.
    assert all(abs(late) < 1.0 for late in late_s[3:]), late_s


def test_readers_skip_heartbeats(broker: Broker, topic: Callable[..., str], place: Place) -> None:
    name = topic(1, **STAMPED)
    broker.send(name, ['{"n": 1}'])
    broker.send(name, [None], headers=[(HEADER, b"")])  # type: ignore[list-item]
    broker.send(name, ['{"n": 2}'])
    broker.send(name, [None], headers=[(HEADER, b"")])  # type: ignore[list-item]
    side = KafkaSide(kafka(name, servers=broker.servers, schema="n bigint"), place, "numbers")
    pieces = side.slices({"0": 0}, {"0": 4})
    rows = [row for piece in pieces for batch in side.read(piece) for row in batch.to_pylist()]
    side.close()
    assert [(row["n"], row["__position"]) for row in rows] == [(1, 0), (2, 2)]


def test_a_backlog_comes_in_pieces(
    broker: Broker, topic: Callable[..., str], order: Callable[[KafkaSource, TopicStart], TopicOrder]
) -> None:
    name = topic(1, **STAMPED)
    spec = spec_of(broker, name)
    broker.send(name, [json.dumps({"n": n}) for n in range(25)])
    start = topic_start(spec)
    one, bound_ms = order(spec, start), wall_us() // 1000 + 50
    at: Positions = start.positions
    ends = []
    for epoch in range(3):
        at = derived(one, at, bound_ms + epoch * INTERVAL_MS, records_max=10).positions
        ends.append(at["0"])
    assert ends[:2] == [10, 20]
    assert ends[2] >= 25


def test_stamps_that_go_back_do_not_move_a_cut_back(broker: Broker, topic: Callable[..., str]) -> None:
    """A new leader's clock may be behind; here producers give the stamps, so that they are known."""
    name = topic(1)
    for stamp_ms in (1_000, 3_000, 2_000, 2_500, 4_000):
        broker.send(name, ["{}"], timestamp=stamp_ms)
    watch = TopicWatch(spec_of(broker, name))
    bounds = (500, 1_000, 1_500, 2_200, 3_000, 3_500, 4_000, 4_001)
    found = [watch.offsets([0], bound_ms)["0"] for bound_ms in bounds]
    watch.close()
    assert found == [0, 0, 1, 1, 1, 4, 4, -1], "the first record that reaches a bound, and never an earlier one again"


def code_of(act: Callable[[], object]) -> ConnectError:
    with pytest.raises(ConnectError) as raised:
        act()
    return raised.value


def test_what_has_no_order_to_derive_is_refused(
    broker: Broker, topic: Callable[..., str], order: Callable[[KafkaSource, TopicStart], TopicOrder]
) -> None:
    by_producers = topic(1)
    told = code_of(lambda: topic_start(spec_of(broker, by_producers)))
    assert told.code == "LS0526"
    assert f"--topic {by_producers} --add-config message.timestamp.type=LogAppendTime" in str(told)
    compacted = topic(1, **STAMPED, **{"cleanup.policy": "compact"})
    assert code_of(lambda: topic_start(spec_of(broker, compacted))).code == "LS0527"


def test_a_topic_that_changes_is_named(
    broker: Broker, topic: Callable[..., str], order: Callable[[KafkaSource, TopicStart], TopicOrder]
) -> None:
    name = topic(1, **STAMPED)
    spec = spec_of(broker, name)
    broker.send(name, ["{}"] * 5)
    start, bound_ms = topic_start(spec), wall_us() // 1000 + 20
    assert derived(order(spec, start), start.positions, bound_ms).positions["0"] >= 5
    broker.trim(name, 0, 3)
    assert code_of(lambda: derived(order(spec, start), start.positions, bound_ms)).code == "LS0522"
    broker.add_partitions(name, 2)
    assert code_of(lambda: derived(order(spec, start), {"0": 5}, bound_ms)).code == "LS0528"
    broker.delete(name)
    broker.make(name, 1, STAMPED)
    assert code_of(lambda: derived(order(spec, start), {"0": 5}, bound_ms)).code == "LS0525"


def test_the_stamps_of_a_history_are_looked_at(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(1)
    broker.send(name, ["{}"])
    broker.set_config(name, STAMPED)
    assert code_of(lambda: topic_start(spec_of(broker, name))).code == "LS0526"
    latest = kafka(name, servers=broker.servers, schema="n bigint", start="latest")
    assert topic_start(latest).positions == {"0": 1}
