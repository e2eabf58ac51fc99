"""Packing records for their buckets, and numbering what is made of one record, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lockstep.compile.hidden_columns import arrow_hidden
from lockstep.compile.packets import Packer, Unpacker
from lockstep.compile.python_steps import PythonStep
from lockstep.keyed.codec import decode
from lockstep.keyed.engine import Emitted
from lockstep.keyed.loads import KEYS_NOTED, SAMPLE, summed
from lockstep.keyed.results import batch_of

RECORD = pa.schema(
    [
        ("n", pa.int64()),
        ("hash", pa.int64()),
        ("time", pa.int64()),
        ("source", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("part", pa.string()),
    ]
)
OWN = [("bucket", pa.int32()), ("mark", pa.bool_()), ("watermark", pa.int64()), ("epoch_time", pa.int64())]
BUCKETS = 4


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema([*RECORD, *(pa.field(*one) for one in OWN)]))


def _record(n: int) -> dict[str, Any]:
    return {"n": n, "hash": n, "source": "s", "partition": "0", "offset": n, "bucket": n % BUCKETS}


def _packed(packer: Packer, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in packer(batches) for row in batch.to_pylist()]


def _numbers(row: dict[str, Any]) -> list[int]:
    found: list[int] = pa.ipc.read_record_batch(pa.py_buffer(row["blob"]), RECORD).column("n").to_pylist()
    return found


def test_records_go_to_their_buckets_in_order_and_a_mark_becomes_a_tick_for_each_bucket() -> None:
    packer = Packer(3, BUCKETS, RECORD, keys=(0,), timed=True)
    mark = {"mark": True, "watermark": 70, "epoch_time": 100, "hash": 0, "bucket": 0}
    rows = _packed(packer, _batch([_record(5), mark, _record(2)]), _batch([_record(1), _record(9)]))
    ticks = [row for row in rows if row["tick"]]
    assert [row["bucket"] for row in ticks] == [0, 1, 2, 3]
    assert {tuple(decode(row["blob"])) for row in ticks} == {(True, 70, 100)}
    packets = {row["bucket"]: _numbers(row) for row in rows if not row["tick"]}
    assert packets == {1: [5, 1, 9], 2: [2]}
    assert {row["input"] for row in rows} == {3}


def test_what_a_task_had_is_counted_by_bucket_and_key_whatever_its_size() -> None:
    few = [_record(n) for n in (5, 5, 5, 2)]
    (load,) = [
        row["load"] for row in _packed(Packer(0, BUCKETS, RECORD, keys=(0,), timed=True), _batch(few)) if row["load"]
    ]
    found = summed("count", [load])
    assert found.buckets == {1: 3, 2: 1} and found.skew == 1.5
    assert [(one.key, one.bucket, one.share) for one in found.keys] == [("5", 1, 0.75), ("2", 2, 0.25)]
    many = [_record(7 if n % 2 else n) for n in range(5 * SAMPLE)]
    rows = _packed(Packer(0, BUCKETS, RECORD, keys=(0,), timed=True), _batch(many))
    found = summed("count", {row["load"] for row in rows if row["load"]})
    assert found.records == len(many), "buckets are counted, not guessed"
    assert found.keys[0].key == "7" and abs(found.keys[0].share - 0.5) < 0.03
    assert len(found.keys) == KEYS_NOTED


def test_a_broadcast_record_goes_to_every_bucket() -> None:
    packer = Packer(1, BUCKETS, RECORD, keys=None, timed=False)
    rows = _packed(packer, _batch([_record(5), _record(6)]))
    assert [(row["bucket"], _numbers(row)) for row in rows] == [(bucket, [5, 6]) for bucket in range(BUCKETS)]


def test_a_task_without_records_sends_nothing() -> None:
    assert _packed(Packer(0, BUCKETS, RECORD, keys=(0,), timed=True), _batch([])) == []


def test_results_come_out_with_their_time_and_a_position_that_counts_on() -> None:
    schema = pa.schema([("user", pa.string())])
    emitted = Emitted()
    emitted.rows, emitted.at_us = [("ann",), (None,)], [5, None]
    blob = batch_of("count", emitted, schema, first_number=40).serialize().to_pybytes()
    given = pa.RecordBatch.from_pydict({"output": [0], "bucket": [7], "epoch_time_us": [1_000_000], "blob": [blob]})
    rows = [row for batch in Unpacker("count", schema, timed=True, ordered=False)([given]) for row in batch.to_pylist()]
    places = [(row["user"], row["__source"], row["__partition"], row["__offset"]) for row in rows]
    assert places == [("ann", "count", "7", 40), (None, "count", "7", 41)]
    assert [row["__event_time"] and row["__event_time"].microsecond for row in rows] == [5, None]
    assert {row["__epoch_time"].timestamp() for row in rows} == {1.0}


def test_flat_map_numbers_what_it_makes_of_a_record_and_a_second_one_counts_within_the_first() -> None:
    schema = pa.schema([("n", pa.int64())])
    first = PythonStep("first", "flat_map", _twice, schema, arrow_hidden([("__part", "bigint")]), "fail", None)
    (made,) = first([pa.RecordBatch.from_pydict({"n": [1, 2]})])
    assert made.column("__part").to_pylist() == [0, 1, 0, 1]
    (again,) = first([made])
    parts = again.column("__part").to_pylist()
    assert parts[:4] == sorted(set(parts[:4])) and parts[:4] == parts[4:]


def _twice(record: Any) -> list[dict[str, int]]:
    return [{"n": record.n}, {"n": -record.n}]
