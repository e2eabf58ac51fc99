"""Journals inside a job as topics, against a real broker: everything comes back, in one order, whoever writes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lockstep.connect.kafka.journals import journal_topic
from lockstep.connect.kafka.letters import TopicLetters, make_letters
from lockstep.connect.letters import letter_writer
from lockstep.connect.protocols import POSITION, Output, Place, Publication
from lockstep.connect.registry import sink_side, source_side, stage_trimmer
from lockstep.connect.sinks.stage_topic import StageTopicSinkSide
from lockstep.connect.sources.stage_topic import StageTopicSide
from lockstep.errors import LockstepError
from lockstep.plan.schema import parse_schema
from lockstep.plan.specs import StageJournal, StageSource
from lockstep.store.dead_letters import Letter
from lockstep.store.protocols import Holder, Positions
from lockstep.store.sqlite_store import open_store
from lockstep.store.types import arrow_schema
from tests.cluster.broker import Broker
from tests.unit.connect.test_connect_stage_topics import ROW, TYPES

SCHEMA = arrow_schema(parse_schema(TYPES))
NAME = "stage-agg"


@pytest.fixture
def inside(broker: Broker, place: Place) -> Place:
    """A place whose journals are topics."""
    return replace(place, journals=f"kafka://{broker.servers}/t-{uuid.uuid4().hex[:12]}.job.run")


def opened(place: Place, schema: pa.Schema = SCHEMA) -> StageTopicSinkSide:
    side = sink_side(StageJournal(NAME), NAME, place)
    assert isinstance(side, StageTopicSinkSide)
    side.open(schema)
    side.last_published()
    return side


def reading(place: Place, types: str = TYPES) -> StageTopicSide:
    side = source_side(StageSource(NAME, parse_schema(types)), place, NAME)
    assert isinstance(side, StageTopicSide)
    return side


def rows_of(epoch: int) -> pa.Table:
    """Some thousand rows of every type, or none."""
    count = (0, 3, 25_000, 1)[epoch % 4]
    rows = [{**ROW, "l": epoch * 100_000 + n} if n % 3 else dict.fromkeys(ROW) for n in range(min(count, 50))]
    few = pa.Table.from_pylist(rows, SCHEMA)
    return pa.concat_tables([few] * (count // 50)) if count > 50 else few


def publish(side: StageTopicSinkSide, epoch: int, holder: Holder) -> Publication:
    rows = rows_of(epoch)
    wanted = Publication(epoch, f"digest-{epoch}", rows.num_rows, str(holder), "v1", epoch_time_us=epoch)
    return side.publish(wanted, Output(SCHEMA, rows), holder)


def read(side: StageTopicSide, start: Positions, end: Positions) -> pa.Table:
    batches = [batch for piece in side.slices(start, end) for batch in side.read(piece)]
    return pa.Table.from_batches(batches, SCHEMA.append(pa.field(POSITION, pa.int64())))


def cuts(side: StageTopicSide, epochs: int) -> Iterator[tuple[Positions, Positions]]:
    since = side.start()
    for epoch in range(epochs):
        advance = side.advance_after(epoch, since)
        assert advance.records == rows_of(epoch).num_rows
        yield since, advance.positions
        since = advance.positions


def test_what_was_handed_on_comes_back_the_same_for_all_whoever_wrote_it(inside: Place) -> None:
    first, second = opened(inside), opened(inside)
    epochs = 6
    for epoch in range(epochs):
        # They take turns every two epochs; the other one finds it written.
        order = [(first, Holder("r0", 1)), (second, Holder("r1", 1))]
        (side, holder), (later, other) = order if epoch % 4 < 2 else order[::-1]
        held = publish(side, epoch, holder)
        assert publish(later, epoch, other) == held
    one, another = reading(inside), reading(inside)
    found = list(cuts(one, epochs))
    assert found == list(cuts(another, epochs))
    assert found[0][0] == found[0][1], "an epoch without rows moves nothing"
    positions: list[int] = []
    for epoch, (start, end) in enumerate(found):
        table = read(one, start, end)
        assert table.drop([POSITION]).equals(rows_of(epoch)), f"epoch {epoch}"
        assert table.equals(read(another, start, end))
        assert first.rows(epoch) == rows_of(epoch)
        positions += table.column(POSITION).to_pylist()
    assert positions == sorted(set(positions)), "positions rise, and none comes twice"
    for each in (first, second, one, another):
        each.close()


def test_what_a_killed_writer_had_begun_is_read_by_nobody(broker: Broker, inside: Place) -> None:
    side = opened(inside)
    publish(side, 0, Holder("r0", 1))
    publish(side, 1, Holder("r0", 1))
    producer = side._producer
    assert producer is not None
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(side._spec.topic, b"half an epoch", partition=0)
    producer.flush(10)
    other = opened(inside)
    for epoch in range(5):
        publish(other, epoch, Holder("r1", 1))
    source = reading(inside)
    for epoch, (start, end) in enumerate(cuts(source, 5)):
        assert read(source, start, end).drop([POSITION]).equals(rows_of(epoch))
    assert b"half an epoch" not in [one.value() for one in broker.messages(side._spec.topic)]
    for one in (side, other, source):
        one.close()


def test_an_epoch_that_nobody_published_is_not_guessed(inside: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.connect.sources.stage_topic.SETTLE_S", 0.3)
    side, source = opened(inside), reading(inside)
    publish(side, 0, Holder("r0", 1))
    assert source.advance_after(0, {"0": 0}).records == 0
    with pytest.raises(LockstepError, match=r"LS0521 .*(\n.*)*epoch 1 is published"):
        source.advance_after(1, {"0": 0})
    side.close()
    source.close()


def test_what_all_have_passed_is_removed_and_asked_for_in_vain(broker: Broker, inside: Place) -> None:
    side, source = opened(inside), reading(inside)
    for epoch in range(4):
        publish(side, epoch, Holder("r0", 1))
    found = list(cuts(source, 4))
    kept_from = found[3][0]
    trimmer = stage_trimmer(NAME, inside)
    trimmer.trim(kept_from)
    deadline_s = time.monotonic() + 20
    while len(broker.messages(side._spec.topic)) > 1:
        assert time.monotonic() < deadline_s, "nothing is removed"
    assert read(source, *found[3]).drop([POSITION]).equals(rows_of(3))
    with closing(reading(inside)) as late, pytest.raises(LockstepError, match="LS0522"):
        read(late, *found[2])
    trimmer.close()
    side.close()
    source.close()


def test_a_topic_that_is_deleted_under_the_job_is_not_made_anew(broker: Broker, inside: Place) -> None:
    side = opened(inside)
    publish(side, 0, Holder("r0", 1))
    side.close()
    opened(inside).close()
    topic = journal_topic(inside.journals, NAME).topic
    broker.delete(topic)
    with pytest.raises(LockstepError, match=rf"LS0530 topic {topic}.* is gone"):
        opened(inside)
    broker.make(topic, 1, {})
    with pytest.raises(LockstepError, match=r"LS0530 .*(\n.*)*made anew"):
        opened(inside)


def test_a_topic_that_begins_anew_under_a_writer_ends_the_job_before_anything_is_lost(
    broker: Broker, inside: Place
) -> None:
    side = opened(inside)
    for epoch in range(5):
        publish(side, epoch, Holder("r0", 1))
    topic = journal_topic(inside.journals, NAME).topic
    broker.delete(topic)
    broker.make(topic, 1, {})
    with closing(side), pytest.raises(LockstepError, match=rf"LS0530 topic {topic}.* is gone"):
        publish(side, 5, Holder("r0", 1))


def test_letters_are_kept_once_whoever_writes_them_and_numbered_for_ever(broker: Broker, inside: Place) -> None:
    store = open_store(inside.home, inside.job)
    make_letters(store, inside.journals)
    make_letters(store, inside.journals)
    writer = letter_writer(inside)
    letters = [Letter("in", "in", "0", offset, f"ü\ud800{offset}", "bad", raw="/w==") for offset in (3, 5)]
    assert writer.keep("in/0/0-9", letters)
    assert not writer.keep("in/0/0-9", letters)
    # Half of a group was written before somebody died; then the whole again.
    assert writer.keep("in/0/9-20", letters[:1])
    assert writer.keep("in/0/9-20", letters)
    # Two at the same time, neither of which saw the other: what is in the log twice is read once.
    book = TopicLetters(inside.journals)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": book.topic.servers})
    for _ in range(2):
        producer.produce(book.topic.topic, b'{"step": "f", "source": "in", "partition": "0", "offset": 1, '
                         b'"record": "{}", "error": "no"}', b"in/0/1@1", partition=0)  # fmt: skip
    producer.flush(10)
    assert book.kept() == 5
    found = list(book.letters())
    assert [one.number for one in found] == [0, 1, 2, 3, 4]
    assert [replace(one, number=-1) for one in found[:4]] == letters * 2
    assert list(TopicLetters(inside.journals).letters()) == found
    book.close()
    broker.delete(book.topic.topic)
    with pytest.raises(LockstepError, match="LS0530"):
        make_letters(store, inside.journals)
    store.close()


def test_a_store_that_begins_anew_does_not_find_an_older_jobs_records(inside: Place, tmp_path: Path) -> None:
    side = opened(inside)
    publish(side, 0, Holder("r0", 1))
    side.close()
    # The same address by mistake, from another store: refused, since its epochs are others.
    elsewhere = replace(inside, home=tmp_path / "elsewhere")
    open_store(elsewhere.home, elsewhere.job).close()
    with pytest.raises(LockstepError, match="LS0503"):
        opened(elsewhere)
