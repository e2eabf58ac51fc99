"""Reading Spark's state stores without Spark: rows, changes, and a base of RocksDB's own files."""

from __future__ import annotations

import json
import struct
import zipfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

from lockstep.runtime.state.changelog import changes
from lockstep.runtime.state.store_reader import StoreReader
from lockstep.runtime.state.unsafe_rows import Field, Unreadable, read_row, write_row

FIELDS = [
    Field("text", "string"),
    Field("whole", "long"),
    Field("small", "integer"),
    Field("yes", "boolean"),
    Field("day", "date"),
    Field("at", "timestamp"),
    Field("bytes", "binary"),
]
VALUES = ("grüße, longer than a word", -5, 7, True, date(2026, 3, 1), datetime(2026, 3, 1, 12, tzinfo=UTC), b"\0\xff")


def test_a_row_comes_back_as_it_was_written_and_nulls_stay() -> None:
    assert read_row(write_row(VALUES, FIELDS), FIELDS) == VALUES
    nothing = (None,) * len(FIELDS)
    assert read_row(write_row(nothing, FIELDS), FIELDS) == nothing
    with pytest.raises(Unreadable):
        write_row([1.5], [Field("x", "double")])


def test_nested_values_are_read() -> None:
    numbers = struct.pack("<qq", 2, 0) + struct.pack("<qq", 4, 5)
    row = bytes(8) + struct.pack("<II", len(numbers), 16) + numbers
    assert read_row(row, [Field("a", {"type": "array", "elementType": "long"})]) == ([4, 5],)
    digits = (-12345).to_bytes(3, "big", signed=True)
    row = bytes(8) + struct.pack("<II", len(digits), 16) + digits.ljust(8, b"\0")
    assert read_row(row, [Field("d", "decimal(38,2)")]) == (Decimal("-123.45"),)
    assert read_row(bytes(8) + struct.pack("<q", 150), [Field("d", "decimal(10,2)")]) == (Decimal("1.50"),)


def _packed(data: bytes) -> bytes:
    """As lz4-java frames it: one packed block, one as it is, and the end."""
    half = len(data) // 2
    block: bytes = pa.Codec("lz4_raw").compress(data[:half], asbytes=True)
    frames = struct.pack("<8sBiii", b"LZ4Block", 0x25, len(block), half, 0) + block
    rest = data[half:]
    frames += struct.pack("<8sBiii", b"LZ4Block", 0x15, len(rest), len(rest), 0) + rest
    return frames + struct.pack("<8sBiii", b"LZ4Block", 0x15, 0, 0, 0)


def _changelog(path: Path, changed: dict[bytes, bytes | None], *, kinds: bool) -> None:
    data = b"\0\2v2" if kinds else b""
    for key, value in changed.items():
        data += (b"\x01" if value is not None else b"\x10") if kinds else b""
        data += struct.pack(">i", len(key)) + key
        data += struct.pack(">i", -1 if value is None else len(value)) + (value or b"")
    path.write_bytes(_packed(data + (b"\0" if kinds else struct.pack(">i", -1))))


@pytest.mark.parametrize("kinds", [False, True])
def test_changes_are_read_in_both_forms(tmp_path: Path, kinds: bool) -> None:
    wanted = {b"a": b"1", b"gone": None, b"b": b"2" * 100}
    _changelog(tmp_path / "1.changelog", wanted, kinds=kinds)
    assert dict(changes(tmp_path / "1.changelog")) == wanted


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else altogether")
    with pytest.raises(ValueError, match="packed"):
        list(changes(tmp_path / "x"))


def _base(folder: Path, version: int, content: dict[bytes, bytes]) -> None:
    """Version ``version`` as a whole, as Spark lays it out."""
    made = folder.parent / f"made-{version}"
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(made), options)
    for key, value in content.items():
        database[key] = value
    database.flush()
    database.close()
    (folder / "SSTs").mkdir(exist_ok=True)
    named = []
    for sst in made.glob("*.sst"):
        kept = f"{sst.stem}-{version}.sst"
        (folder / "SSTs" / kept).write_bytes(sst.read_bytes())
        named.append({"localFileName": sst.name, "dfsSstFileName": kept, "sizeBytes": sst.stat().st_size})
    with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
        for path in made.iterdir():
            if path.name.startswith(("MANIFEST", "CURRENT", "OPTIONS")):
                archive.write(path, path.name)
        archive.writestr("metadata", f"v1\n{json.dumps({'sstFiles': named})}")


def test_a_reader_follows_a_base_and_the_changes_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    _changelog(folder / "1.changelog", {b"a": b"0"}, kinds=False)
    reader = StoreReader(folder, tmp_path / "scratch")
    reader.move_to(1)
    assert reader.get(b"a") == b"0" and reader.get(b"b") is None
    _base(folder, 4, {b"a": b"1", b"b": b"2", b"c": b"3"})
    _changelog(folder / "5.changelog", {b"b": None, b"d": b"4"}, kinds=False)
    reader.move_to(4)
    assert dict(reader.scan()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    # Spark may delete what it does not need any more: the reader has links of its own.
    (folder / "4.zip").unlink()
    for sst in (folder / "SSTs").iterdir():
        sst.unlink()
    reader.move_to(5)
    assert dict(reader.scan()) == {b"a": b"1", b"c": b"3", b"d": b"4"}
    assert reader.get(b"b") is None and reader.get(b"c") == b"3"
    with pytest.raises(FileNotFoundError):
        reader.move_to(6)
    reader.close()
    assert not (tmp_path / "scratch").exists()
