"""A function of batches that cannot take some records, with on_error="skip"."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.compile.hidden_columns import OFFSET, PARTITION, SOURCE
from lockstep.compile.python_steps import PythonStep

HIDDEN = pa.schema([(SOURCE, pa.string()), (PARTITION, pa.string()), (OFFSET, pa.int64())])


def refuses_thirteen(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 13 in batch.column("x").to_pylist():
        raise ValueError("thirteen")
    return pa.record_batch({"y": pc.multiply(batch.column("x"), 2)})


def test_only_the_records_it_cannot_take_are_skipped_and_each_is_kept_once() -> None:
    kept: dict[str, dict[str, Any]] = {}
    step = PythonStep(
        step="double",
        kind="map_batches",
        function=refuses_thirteen,
        schema=pa.schema([("y", pa.int64())]),
        hidden=HIDDEN,
        on_error="skip",
        dead_letters=lambda key, _, facts: kept.update({key: facts}),
    )
    numbers = [1, 13, 2, 3, 13, 4, 5]
    batch = pa.record_batch(
        {
            "x": pa.array(numbers, pa.int64()),
            SOURCE: pa.array(["s"] * 7),
            PARTITION: pa.array(["0"] * 7),
            OFFSET: pa.array(range(100, 107), pa.int64()),
        }
    )
    made = pa.Table.from_batches(list(step([batch])))
    assert made.column("y").to_pylist() == [2, 4, 6, 8, 10]
    assert made.column(OFFSET).to_pylist() == [100, 102, 103, 105, 106]
    assert sorted(facts["offset"] for facts in kept.values()) == [101, 104]
    assert all("thirteen" in facts["error"] for facts in kept.values())
