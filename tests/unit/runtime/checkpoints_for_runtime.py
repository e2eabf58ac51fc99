"""Makes folders that look like Spark's checkpoints: offset log, commit log, RocksDB state with changelogs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

from lockstep.runtime.state.checksums import write_sums

JOIN_STORES = ("left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue")


def write_checkpoint(
    folder: Path,
    committed: int,
    *,
    begun: int | None = None,
    first_epoch: int = 0,
    base: int = 0,
    sources: int = 2,
    partitions: int = 2,
    stores: Sequence[str] = ("default",),
) -> Path:
    """A checkpoint whose batches 0 to ``committed`` are committed; batch b computes epoch ``first_epoch + b``.

    The state has a full version ``base`` and a changelog for every version after it; version is batch + 1.
    """
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for batch in range((committed if begun is None else begun) + 1):
        offset = json.dumps({"epoch": first_epoch + batch})
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), *[offset] * sources]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines), encoding="utf-8")
    for batch in range(committed + 1):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
    if partitions:
        write_note(folder, stores, partitions)
    for partition in range(partitions):
        inside = folder / "state" / "0" / str(partition)
        for store in stores:
            _write_state(inside if store == "default" else inside / store, base, committed + 1)
    (folder / "metadata").write_text('{"id":"x"}', encoding="utf-8")
    return folder


def write_note(folder: Path, stores: Sequence[str], partitions: int, operator: int = 0) -> None:
    """What Spark notes about an operator."""
    info = [{"storeName": store, "numColsPrefixKey": 0, "numPartitions": partitions} for store in stores]
    name = "symmetricHashJoin" if len(stores) > 1 else "stateStoreSave"
    note = {"operatorInfo": {"operatorId": operator, "operatorName": name}, "stateStoreInfo": info}
    path = folder / "state" / str(operator) / "_metadata" / "metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"v1\n{json.dumps(note)}", encoding="utf-8")


def _write_state(folder: Path, base: int, newest: int) -> None:
    (folder / "SSTs").mkdir(parents=True)
    (folder / "SSTs" / "000008-abc.sst").write_bytes(b"sorted")
    if base:
        note = {"sstFiles": [{"localFileName": "000008.sst", "dfsSstFileName": "000008-abc.sst", "sizeBytes": 6}]}
        with zipfile.ZipFile(folder / f"{base}.zip", "w") as archive:
            archive.writestr("metadata", f"v1\n{json.dumps(note)}")
    for version in range(base + 1, newest + 1):
        (folder / f"{version}.changelog").write_bytes(f"change {version}".encode())
    for path in [*folder.glob("*.*"), folder / "SSTs" / "000008-abc.sst"]:
        write_sums(path)
