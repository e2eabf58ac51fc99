"""What of journals in topics needs no broker: addresses and names, pages, what the fence says, who is chosen."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep import F
from lockstep.connect.kafka import journals
from lockstep.connect.kafka.fence import FENCES_KEPT, Fence, epoch_record
from lockstep.connect.kafka.letters import TopicLetterWriter
from lockstep.connect.letters import dead_letters, letter_writer
from lockstep.connect.protocols import FILES, JOURNALS, Place, Publication
from lockstep.connect.registry import sink_side, source_side
from lockstep.connect.sinks.stage import StageSinkSide
from lockstep.connect.sinks.stage_topic import StageTopicSinkSide
from lockstep.connect.sources.stage import StageSide
from lockstep.connect.sources.stage_topic import PAGES_PER_SLICE, ROW_BITS, StageTopicSide
from lockstep.control.start import journals as settling
from lockstep.control.start.journals import settle_journals
from lockstep.control.start.shared_places import check_places
from lockstep.errors import LockstepError, RunError
from lockstep.plan.schema import parse_schema
from lockstep.plan.specs import StageJournal, StageSource
from lockstep.runtime.executor_watch import embedded_parts
from lockstep.store.batches import RECORDS_PER_BATCH_MAX
from lockstep.store.protocols import Entry
from lockstep.store.sqlite_store import open_store
from lockstep.store.types import arrow_schema

ADDRESS = "kafka://127.0.0.1:1/lockstep"
TYPES = (
    "b boolean, i int, l bigint, f float, d double, s string, raw binary, day date, at timestamp, local timestamp_ntz, "
    "price decimal(38,10), tags array<string>, counts map<string,bigint>, "
    "deep struct<a:int,b:array<struct<c:string,d:decimal(5,2)>>>"
)
ROW: dict[str, Any] = {
    "b": True,
    "i": -(2**31),
    "l": 2**63 - 1,
    "f": 0.1,
    "d": 5e-324,
    "s": "ü\x00\U0001f600",
    "raw": b"\x00\xff",
    "day": date(1, 1, 1),
    "at": datetime(2026, 3, 29, 1, 30, 0, 1, UTC),
    "local": datetime(2026, 3, 29, 2, 30),
    "price": Decimal("-9999999999999999999999999999.9999999999"),
    "tags": ["", None],
    "counts": [("a", None), ("b", 1)],
    "deep": {"a": None, "b": [{"c": None, "d": Decimal("1.50")}, None]},
}


def back(table: pa.Table) -> pa.Table:
    """What a reader makes of the pages of a table."""
    return pa.Table.from_batches([journals.rows_of(page, table.schema) for page in journals.pages(table)], table.schema)


def test_rows_of_every_type_come_back_as_they_were() -> None:
    schema = arrow_schema(parse_schema(TYPES))
    nothing: dict[str, Any] = dict.fromkeys(ROW)
    table = pa.Table.from_pylist([ROW, nothing, ROW], schema)
    assert back(table).equals(table, check_metadata=True)


@given(st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=9)), max_size=50))
def test_any_rows_come_back_in_their_order(rows: list[tuple[int | None, str | None]]) -> None:
    table = pa.table({"n": [n for n, _ in rows], "s": [s for _, s in rows]}, pa.schema({"n": "int64", "s": "string"}))
    assert back(table).equals(table)


def test_pages_are_bounded_whatever_the_rows() -> None:
    many = pa.table({"n": pa.array(range(3 * RECORDS_PER_BATCH_MAX + 1), pa.int64())})
    rows = [journals.rows_of(page, many.schema).num_rows for page in journals.pages(many)]
    assert sum(rows) == many.num_rows
    assert max(rows) < 1 << ROW_BITS, "a row's number fits below the page's"
    # A few rows are as wide as thousands of others; bytes that do not shrink.
    wide = [bytes(n % 251 for n in range(k, k + 3_000_000)) for k in range(4)]
    skewed = pa.table({"s": pa.array([b"x"] * 20_000 + wide, pa.binary())})
    pages = list(journals.pages(skewed))
    assert max(map(len, pages)) < journals.MESSAGE_BYTES_MAX
    assert back(skewed).equals(skewed)


def test_names_of_topics_are_kafkas_and_differ() -> None:
    long = journals.address_of_job(ADDRESS, "j" * 100, "3f2a")
    names = [journals.journal_topic(long, f"stage-{'s' * 90}{n}").topic for n in range(2)]
    assert all(len(name) <= 200 for name in names)
    assert len(set(names)) == 2
    assert names[0] == journals.journal_topic(long, f"stage-{'s' * 90}0").topic


@pytest.mark.parametrize(
    "address", ["zookeeper://h1:2181", "kafka:///lockstep", "kafka://h1:9092/a b", "kafka://h1/l?sasl.password=secret"]
)
def test_an_address_that_cannot_be_one_is_refused(address: str) -> None:
    with pytest.raises(LockstepError, match="LS0501"):
        journals.checked(address)


def test_the_clients_settings_stand_behind_the_address() -> None:
    address = "kafka://h1:9092,h2:9092/lockstep?sasl.password=env:SECRET&security.protocol=sasl_ssl"
    topic = journals.journal_topic(journals.address_of_job(address, "job", "3f2a"), "stage-agg")
    assert topic.servers == "h1:9092,h2:9092"
    assert dict(topic.options) == {"sasl.password": "env:SECRET", "security.protocol": "sasl_ssl"}
    assert journals.read_as(topic).topic == "lockstep.job.3f2a.stage-agg"


def test_the_fence_says_where_each_epoch_ended_as_long_as_it_knows_the_epoch() -> None:
    fence = Fence()
    for epoch in range(FENCES_KEPT + 2):
        record = epoch_record(Publication(epoch, f"d{epoch}", 1, "r0.1", "v1"), end=10 * epoch)
        fence.take(*record)
        fence.take(*record)
    assert fence.end_of(FENCES_KEPT + 1) == 10 * (FENCES_KEPT + 1)
    assert (fence.end_of(1), fence.end_of(2), fence.end_of(FENCES_KEPT + 2)) == (None, 20, None)
    found = fence.find(FENCES_KEPT + 1)
    assert found is not None and found.digest == f"d{FENCES_KEPT + 1}"


def test_the_place_says_what_a_journal_inside_a_job_is(place: Place) -> None:
    topics = Place(place.project, place.home, place.job, journals=ADDRESS)
    reading, writing = StageSource("between", parse_schema("n bigint")), StageJournal("between")
    for where, source, sink in (
        (place, StageSide, StageSinkSide),
        (topics, StageTopicSide, StageTopicSinkSide),
    ):
        assert type(source_side(reading, where, "between")) is source
        assert type(sink_side(writing, "between", where)) is sink


def test_a_range_of_offsets_is_read_in_pieces(place: Place) -> None:
    where = Place(place.project, place.home, place.job, journals=ADDRESS)
    side = source_side(StageSource("between", parse_schema("n bigint")), where, "between")
    assert side.start() == {"0": 0}
    last = 2 * PAGES_PER_SLICE + 1
    pieces = side.slices({"0": 3}, {"0": 3 + last})
    assert [(one.start, one.end) for one in pieces] == [(3, 11), (11, 19), (19, 20)]
    assert side.slices({"0": 3}, {"0": 3}) == []


def test_letters_are_where_the_store_says(place: Place) -> None:
    store = open_store(place.home, place.job)
    assert letter_writer(place).store == str(place.home)
    topics = Place(place.project, place.home, place.job, journals=ADDRESS)
    assert isinstance(letter_writer(topics), TopicLetterWriter)
    store.set_fact(JOURNALS, FILES)
    assert dead_letters(place.home, place.job, store).open() == 0
    store.close()


def two_stages() -> ls.Job:
    job = ls.Job("hours")
    orders = job.source("orders", ls.kafka("orders", servers="127.0.0.1:1", schema="user string, at timestamp"))
    minutes = orders.event_time("at").key_by("user").window(ls.tumbling("1 minute")).agg(n=F.count("*"))
    minutes.window(ls.tumbling("1 hour")).agg(most=F.max("n")).to(
        ls.kafka("hours", servers="127.0.0.1:1"), name="hours"
    )
    return job


def test_stages_are_refused_on_several_hosts_unless_their_journals_are_topics() -> None:
    graph = two_stages().graph()
    assert len(graph.boundaries) == 1
    with pytest.raises(RunError, match=r'LS0686 .*(\n.*)*journals = "kafka://'):
        check_places(graph, ["h1", "h2"])
    check_places(graph, ["h1", "h2"], ADDRESS)
    check_places(graph, ["h1"])


def test_a_journal_that_a_job_reads_is_refused_on_several_hosts_whatever_the_setting() -> None:
    job = ls.Job("job")
    job.source("in", ls.journal("in", schema="a bigint")).to(ls.kafka("out", servers="127.0.0.1:1"), name="out")
    with pytest.raises(RunError, match="LS0686") as refused:
        check_places(job.graph(), ["h1", "h2"], ADDRESS)
    assert "journals =" not in str(refused.value)


def test_executors_on_other_machines_may_have_stages_and_dead_letters_in_topics() -> None:
    graph = two_stages().graph()
    assert len(embedded_parts(graph)) == 2
    assert embedded_parts(graph, ADDRESS) == ['source "orders" (dead letters: on_bad_record="skip")'], "notes an event"
    assert embedded_parts(graph, ADDRESS, shared_store=True) == []


def test_where_journals_are_is_fixed_by_the_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(settling, "make_letters", lambda _, address: made.append(address))
    store = open_store(tmp_path, "job")
    first = settle_journals(store, "job", ADDRESS)
    assert first.startswith(f"{ADDRESS}.job.")
    assert settle_journals(store, "job", ADDRESS) == first, "a second run goes on with its topics"
    moved = settle_journals(store, "job", "kafka://h7:9092/lockstep")
    assert moved == first.replace("127.0.0.1:1", "h7:9092"), "brokers may change"
    assert made == [first, first, moved]
    corrected = settle_journals(store, "job", "kafka://127.0.0.1:1/another")
    assert corrected.startswith("kafka://127.0.0.1:1/another.job."), "nothing was sealed yet: it may be corrected"
    assert settle_journals(store, "job", "") == ""
    again = settle_journals(store, "job", ADDRESS)
    assert again.startswith(f"{ADDRESS}.job.") and again != first
    store.seal(Entry(0, 1, {}), store.begin("r0", 1), ())
    for other in ("", "kafka://127.0.0.1:1/another"):
        with pytest.raises(RunError, match="LS0618"):
            settle_journals(store, "job", other)
    store.close()
    another = open_store(tmp_path / "another", "job")
    assert settle_journals(another, "job", ADDRESS) != first, "a job that begins anew has topics of its own"
    another.close()


def test_a_job_that_began_with_files_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "make_letters", lambda *_: pytest.fail("no topic is wanted"))
    store = open_store(tmp_path, "job")
    assert settle_journals(store, "job", "") == ""
    store.seal(Entry(0, 1, {}), store.begin("r0", 1), ())
    with pytest.raises(RunError, match=r"LS0618 .* files of its host"):
        settle_journals(store, "job", ADDRESS)
    older = open_store(tmp_path / "older", "job")
    older.seal(Entry(0, 1, {}), older.begin("r0", 1), ())
    with pytest.raises(RunError, match="LS0618"):
        settle_journals(older, "job", ADDRESS)
    store.close()
    older.close()
