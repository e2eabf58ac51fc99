"""The files source: read once, in an agreed order, never half, and never changed unnoticed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.connect.protocols import Place
from lockstep.connect.registry import source_side
from lockstep.connect.specs import files
from lockstep.errors import ConnectError
from lockstep.store.dead_letters import DeadLetters, Letter, readable
from tests.unit.connect.sealing_for_connect import SOURCE, Sealing

Make = Callable[[Any], Sealing]
NOW_US = 1_700_000_000_000_000
S = 1_000_000
SCHEMA = "n bigint, s string"


def _put(place: Place, name: str, numbers: range, age_s: float = 10, text: str = "x") -> Path:
    return _put_bytes(place, name, _lines(numbers, text), age_s)


def _lines(numbers: range, text: str = "x") -> bytes:
    return b"".join(json.dumps({"n": n, "s": text}).encode() + b"\n" for n in numbers)


def _put_bytes(place: Place, name: str, data: bytes, age_s: float = 10) -> Path:
    path = place.project / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    _set_age(path, age_s)
    return path


def _set_age(path: Path, age_s: float) -> None:
    at_ns = NOW_US * 1000 - round(age_s * 1e9)
    os.utime(path, ns=(at_ns, at_ns))


def _numbers(epochs: list[list[dict[str, Any]]]) -> list[list[int]]:
    return [[record["n"] for record in epoch] for epoch in epochs]


@pytest.fixture(autouse=True)
def _look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.connect.sources.watch.LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr("lockstep.connect.sources.watch._LOOK_SHARE", 0)


def test_files_are_read_once_by_age_then_name_in_epochs_of_bounded_size(place: Place, sealing: Make) -> None:
    _put(place, "b.jsonl", range(10, 13), age_s=20)
    _put(place, "sub/c.jsonl", range(20, 22), age_s=5)
    _put(place, "a.jsonl", range(3), age_s=20)
    job = sealing(files("in", schema=SCHEMA))
    assert _numbers(job.drain(NOW_US, records_max=4)) == [[0, 1, 2, 10], [11, 12, 20, 21]]
    assert job.drain(NOW_US + 60 * S) == []
    _put(place, "late.jsonl", range(30, 31), age_s=3)
    assert _numbers(job.drain(NOW_US + 60 * S)) == [[30]]


def test_a_folder_that_is_not_there_yet_is_empty(sealing: Make) -> None:
    assert sealing(files("in", schema=SCHEMA)).drain(NOW_US) == []


def test_another_replica_goes_on_in_the_middle_of_a_file_and_reads_the_same(place: Place, sealing: Make) -> None:
    _put(place, "a.jsonl", range(10))
    spec = files("in", schema=SCHEMA)
    first = sealing(spec)
    first.seal(NOW_US, records_max=4)
    second = sealing(spec)
    assert _numbers([second.read(0)]) == [[0, 1, 2, 3]]
    assert _numbers(second.drain(NOW_US, records_max=4)) == [[4, 5, 6, 7], [8, 9]]
    first.seal(NOW_US)
    assert _numbers([first.read(2)]) == [[8, 9]]
    assert first.seal(NOW_US).records == 0


def test_a_file_that_is_being_written_is_left_until_it_is_still(place: Place, sealing: Make) -> None:
    path = _put(place, "a.jsonl", range(2), age_s=0.5)
    job = sealing(files("in", schema=SCHEMA, still_for="1 second"))
    assert job.seal(NOW_US).records == 0
    with path.open("ab") as file:
        file.write(_lines(range(2, 4)))
    _set_age(path, -1)
    assert job.seal(NOW_US + 1 * S).records == 0
    assert job.seal(NOW_US + 3 * S).records == 4


def test_a_rewrite_that_keeps_an_old_time_needs_a_second_look(place: Place, sealing: Make) -> None:
    path = _put(place, "a.jsonl", range(2), age_s=0.5)
    job = sealing(files("in", schema=SCHEMA, still_for="1 second"))
    assert job.seal(NOW_US).records == 0
    path.write_bytes(_lines(range(3)))
    _set_age(path, 50)
    assert job.seal(NOW_US + S // 10).records == 0
    assert job.seal(NOW_US + S // 5).records == 3


def test_a_file_that_appears_by_rename_is_taken_at_once(place: Place, sealing: Make) -> None:
    job = sealing(files("in", schema=SCHEMA))
    hidden = _put(place, ".a.jsonl", range(2))
    assert job.seal(NOW_US).records == 0
    hidden.rename(hidden.with_name("a.jsonl"))
    assert job.seal(NOW_US).records == 2


def test_a_time_in_the_future_does_not_keep_a_file_out_for_ever(place: Place, sealing: Make) -> None:
    _put(place, "a.jsonl", range(2), age_s=-3600)
    job = sealing(files("in", schema=SCHEMA))
    assert [job.seal(NOW_US + at * S // 2).records for at in range(4)] == [0, 0, 2, 0]


def test_hidden_temporary_and_other_names_and_links_outside_are_ignored(place: Place, sealing: Make) -> None:
    for name in ("_x.jsonl", ".x.jsonl", "x.jsonl.tmp", "_sub/x.jsonl", "x.csv"):
        _put(place, name, range(3))
    outside = place.project / "outside.jsonl"
    outside.write_bytes(_lines(range(5)))
    (place.project / "in" / "link.jsonl").symlink_to(outside)
    (place.project / "in" / "loop").symlink_to(place.project / "in")
    _put(place, "empty.jsonl", range(0))
    assert sealing(files("in", schema=SCHEMA, pattern="*.jsonl")).drain(NOW_US) == []


@pytest.mark.parametrize("when", ["at the next look", "when read"])
def test_a_file_changed_after_sealing_is_an_error_that_names_it(place: Place, sealing: Make, when: str) -> None:
    path = _put(place, "a.jsonl", range(4))
    job = sealing(files("in", schema=SCHEMA))
    job.seal(NOW_US)
    with path.open("ab") as file:
        file.write(_lines(range(1)))
    with pytest.raises(ConnectError, match=r"in/a.jsonl changed after it was sealed") as caught:
        job.seal(NOW_US) if when == "at the next look" else job.read(0)
    assert caught.value.code == "LS0504"


def test_other_content_is_found_even_with_the_same_size_and_time(place: Place, sealing: Make) -> None:
    path = _put(place, "a.jsonl", range(4))
    job = sealing(files("in", schema=SCHEMA))
    job.seal(NOW_US)
    path.write_bytes(_lines(range(4, 8)))
    _set_age(path, 10)
    with pytest.raises(ConnectError) as caught:
        job.read(0)
    assert caught.value.code == "LS0504"


def test_a_sealed_file_that_is_missing_is_an_error_that_names_it(place: Place, sealing: Make) -> None:
    path = _put(place, "a.jsonl", range(4))
    job = sealing(files("in", schema=SCHEMA))
    job.seal(NOW_US)
    path.unlink()
    with pytest.raises(ConnectError, match=r"in/a.jsonl is missing") as caught:
        job.read(0)
    assert caught.value.code == "LS0505"


@pytest.mark.parametrize("on_bad_record", ["skip", "stop"])
def test_a_file_removed_before_its_end_is_set_aside_or_stops_the_job(
    place: Place, sealing: Make, on_bad_record: Any
) -> None:
    path = _put(place, "a.jsonl", range(10))
    job = sealing(files("in", schema=SCHEMA, on_bad_record=on_bad_record))
    job.seal(NOW_US, records_max=4)
    path.unlink()
    if on_bad_record == "stop":
        with pytest.raises(ConnectError) as caught:
            job.seal(NOW_US)
        assert caught.value.code == "LS0505"
        return
    job.seal(NOW_US)
    assert job.read(1) == []
    [letter] = _letters(job)
    assert (letter.source, letter.partition, letter.offset) == (SOURCE, "a.jsonl", 5)
    assert "removed before it was read to its end" in letter.error
    assert job.drain(NOW_US) == []


def _letters(job: Sealing) -> list[Letter]:
    letters = DeadLetters(job.place.home, job.place.job, job.store)
    try:
        return list(letters.letters())
    finally:
        letters.close()


def test_one_bad_line_is_set_aside_alone_once_and_the_job_goes_on(place: Place, sealing: Make) -> None:
    good = b'{"n": 1, "s": "a"}\n'
    _put_bytes(place, "bad.jsonl", good * 2 + b'{"n": "two", "s": "b"}\n' + good, age_s=20)
    _put(place, "good.jsonl", range(3))
    spec = files("in", schema=SCHEMA)
    job = sealing(spec)
    assert _numbers(job.drain(NOW_US)) == [[1, 1, 1, 0, 1, 2]]
    other = source_side(spec, place, SOURCE)
    assert _numbers([job.read(0, other)]) == [[1, 1, 1, 0, 1, 2]]
    other.close()
    [letter] = _letters(job)
    assert (letter.source, letter.partition, letter.offset) == (SOURCE, "bad.jsonl", 3)
    assert letter.record == '{"n": "two", "s": "b"}'
    assert 'field "n" should be bigint' in letter.error
    assert [kind for _, _, kind, _, _ in job.store.events()] == ["dead-letter"]


JSON_LINES: list[tuple[bytes, int | None]] = [
    (b'{"n": 1, "s": "plain"}', 1),
    (b'{"n": 2', None),
    (b'{"n": "text", "s": "x"}', None),
    (b'{"n": 99999999999999999999}', None),
    (b'{"n": 1.5}', None),
    (b'{"s": "\xff"}', None),
    (b"[1]", None),
    (b'{"n": 3} {"n": 4}', None),
    (b'{"n": 5, "more": {"x": [1]}}', 5),
    (b"{}", None),
    (b"", None),
]
CSV_ROWS: list[tuple[bytes, int | None]] = [
    (b"1,plain", 1),
    (b"2,a,b", None),
    (b"x,a", None),
    (b"99999999999999999999,a", None),
    (b"3,\xff", None),
    (b'4,"two\nlines"', 4),
    (b"5", None),
    (b'6,"a, ""b"""', 6),
    (b'7,5" pipe', 7),
]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, len(JSON_LINES) - 1), max_size=60), st.integers(1, 50))
def test_every_json_line_is_a_record_or_a_letter_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, picked: list[int], records_max: int
) -> None:
    lines = [JSON_LINES[index] for index in picked]
    data = b"".join(line + b"\n" for line, _ in lines)
    records, letters = _read_all(tmp_path_factory, "jsonl", data, records_max)
    # By hand: an empty object is a record of nulls, an empty line is nothing.
    assert records == [n for line, n in lines if n is not None or line == b"{}"]
    expected = [(at, line) for at, (line, n) in enumerate(lines, 1) if n is None and line not in (b"", b"{}")]
    assert [(letter.offset, letter.record) for letter in letters] == [(at, readable(line)) for at, line in expected]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, len(CSV_ROWS) - 1), max_size=60), st.integers(1, 50))
def test_every_csv_row_is_a_record_or_a_letter_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, picked: list[int], records_max: int
) -> None:
    rows = [CSV_ROWS[index] for index in picked]
    data = b"n,s\n" + b"".join(row + b"\n" for row, _ in rows)
    records, letters = _read_all(tmp_path_factory, "csv", data, records_max)
    assert records == [n for _, n in rows if n is not None]
    expected, at = [], 2
    for row, n in rows:
        if n is None:
            expected.append((at, "n,s\n" + readable(row)))
        at += row.count(b"\n") + 1
    assert [(letter.offset, letter.record) for letter in letters] == expected


def _read_all(
    folders: pytest.TempPathFactory, format: Any, data: bytes, records_max: int
) -> tuple[list[int], list[Letter]]:
    folder = folders.mktemp("place")
    place = Place(folder, folder / ".lockstep", "job")
    _put_bytes(place, f"a.{format}", data)
    job = Sealing(place, files("in", schema=SCHEMA, format=format))
    try:
        records = [n for epoch in _numbers(job.drain(NOW_US, records_max)) for n in epoch]
        return records, _letters(job)
    finally:
        job.close()


@pytest.mark.parametrize(
    ("data", "numbers", "bad"),
    [
        (b'1,"open\n2,b\n3,c\n', [2, 3], [(2, '1,"open')]),
        (b'1,a\n2,"open\n3,c\n4,"closed"\n5,e\n', [1, 3, 4, 5], [(3, '2,"open')]),
        (b'1,a\n2,"open', [1], [(3, '2,"open')]),
        (b"1,a\n2,b,c", [1], [(3, "2,b,c")]),
    ],
)
def test_a_quote_that_is_never_closed_costs_its_line_and_not_the_rest_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, numbers: list[int], bad: list[tuple[int, str]]
) -> None:
    records, letters = _read_all(tmp_path_factory, "csv", b"n,s\n" + data, 1000)
    assert records == numbers
    assert [(letter.offset, letter.record.partition("\n")[2]) for letter in letters] == bad
    assert all("quote" in letter.error or "columns" in letter.error for letter in letters)


def test_a_bad_field_is_named_whatever_the_order_of_columns(place: Place, sealing: Make) -> None:
    _put_bytes(place, "a.csv", b"more,s,n\n1,x,1\n1,x,y\n")
    job = sealing(files("in", schema=SCHEMA, format="csv"))
    assert _numbers(job.drain(NOW_US)) == [[1]]
    [letter] = _letters(job)
    assert letter.error.startswith('field "n": ')


@pytest.mark.parametrize(
    ("name", "data", "format", "schema"),
    [
        ("x.jsonl", b'{"n": 1}\n{"n": 2\n', "jsonl", SCHEMA),
        ("x.jsonl", b'{"n": 1}\n{"s": "\xff"}\n', "jsonl", SCHEMA),
        ("x.jsonl", b'{"n": 1} {"n": 2}\n', "jsonl", SCHEMA),
        ("x.jsonl", b'{"n":\n1}\n', "jsonl", SCHEMA),
        ("x.jsonl", b"[1]\n", "jsonl", SCHEMA),
        ("x.jsonl", b'{"d": 123.4}\n', "jsonl", "d decimal(3,1)"),
        ("x.csv", b"n,s\n1,a,b\n", "csv", SCHEMA),
        ("x.csv", b"n,s\nx,a\n", "csv", SCHEMA),
        ("x.csv", b"n,t\n1,a\n", "csv", SCHEMA),
        ("x.csv", b"n,s,s\n1,a,b\n", "csv", SCHEMA),
        ("x.csv", b"\xff,s\n1,a\n", "csv", SCHEMA),
        ("x.parquet", b"PAR1 not at all", "parquet", SCHEMA),
    ],
)
def test_what_does_not_parse_stops_the_job_if_asked(
    place: Place, sealing: Make, name: str, data: bytes, format: Any, schema: str
) -> None:
    _put_bytes(place, name, data)
    job = sealing(files("in", schema=schema, format=format, on_bad_record="stop"))
    job.seal(NOW_US)
    with pytest.raises(ConnectError, match=rf"in/{name}.* cannot be read") as caught:
        job.read(0)
    assert caught.value.code == "LS0506"


def test_one_odd_line_does_not_hide_the_others(place: Place, sealing: Make) -> None:
    lines = [json.dumps({"n": n, "s": "é", "extra": [n]}, ensure_ascii=False) for n in range(5000)]
    lines[1234] = '  {"s": "\\u00e9", "n": 1234.0e0}  '
    lines[4321] = "\r"
    data = "\n".join(lines).encode()
    _put_bytes(place, "a.jsonl", b"\xef\xbb\xbf" + data)
    job = sealing(files("in", schema="n double, s string"))
    records = [record for epoch in job.drain(NOW_US, 100_000) for record in epoch]
    assert records == [{"n": float(n), "s": "é"} for n in range(5000) if n != 4321]


def test_csv_columns_are_found_by_name_and_times_need_no_zone(place: Place, sealing: Make) -> None:
    rows = [
        "s,at,more,n",
        '"a, ""b""\nc",2024-01-01T00:00:00Z,1,1',
        ",2024-01-01 01:00:00+01:00,2,2",
        '"",2024-01-01,3,',
    ]
    text = "".join(f"{row}\r\n" for row in rows)
    _put_bytes(place, "a.csv", text.encode())
    job = sealing(files("in", schema="n int, s string, at timestamp", format="csv"))
    epochs = job.drain(NOW_US, records_max=2)
    assert [[(r["n"], r["s"]) for r in epoch] for epoch in epochs] == [[(1, 'a, "b"\nc'), (2, None)], [(None, "")]]
    assert {r["at"].isoformat() for epoch in epochs for r in epoch} == {"2024-01-01T00:00:00+00:00"}


def test_parquet_is_read_by_row_groups_with_columns_by_name(place: Place, sealing: Make) -> None:
    path = _put_bytes(place, "a.parquet", b"")
    table = pa.table({"s": ["x"] * 10, "n": pa.array(range(10), pa.int32()), "more": range(10)})
    pq.write_table(table, path, row_group_size=3)
    _set_age(path, 10)
    job = sealing(files("in", schema=SCHEMA, format="parquet"))
    epochs = job.drain(NOW_US, records_max=6)
    assert _numbers(epochs) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    assert epochs[0][0] == {"n": 0, "s": "x"}


def test_a_parquet_type_that_would_lose_something_is_corrupt(place: Place, sealing: Make) -> None:
    path = _put_bytes(place, "a.parquet", b"")
    pq.write_table(pa.table({"n": [1.5], "s": ["x"]}), path)
    _set_age(path, 10)
    job = sealing(files("in", schema=SCHEMA, format="parquet"))
    job.seal(NOW_US)
    assert job.read(0) == []
    [letter] = _letters(job)
    assert letter.error.endswith("(row groups 0 to 1 of the file, about 1 records)")


def test_trimming_forgets_only_files_that_are_gone(place: Place, sealing: Make) -> None:
    gone = _put(place, "a.jsonl", range(4), age_s=20)
    _put(place, "b.jsonl", range(4), age_s=15)
    _put(place, "c.jsonl", range(4), age_s=10)
    spec = files("in", schema=SCHEMA)
    job = sealing(spec)
    job.drain(NOW_US, records_max=4)
    gone.unlink()
    job.side.trim({"0": 2})
    assert [item.body["path"] for item in job.store.items(SOURCE, 0, 9)] == ["b.jsonl", "c.jsonl"]
    assert sealing(spec).seal(NOW_US).records == 0


def test_the_name_of_a_trimmed_file_can_be_used_again(place: Place, sealing: Make) -> None:
    path = _put(place, "a.jsonl", range(4), age_s=20)
    _put(place, "b.jsonl", range(4))
    spec = files("in", schema=SCHEMA)
    job, other = sealing(spec), sealing(spec)
    job.drain(NOW_US)
    other.seal(NOW_US)
    path.unlink()
    job.side.trim({"0": 2})
    assert [job.seal(NOW_US).records, other.seal(NOW_US).records] == [0, 0]
    _put(place, "a.jsonl", range(7), age_s=5)
    assert [job.seal(NOW_US).records, other.seal(NOW_US).records] == [7, 0]


def test_trimming_while_the_folder_is_away_forgets_nothing(place: Place, sealing: Make) -> None:
    _put(place, "a.jsonl", range(4), age_s=20)
    _put(place, "b.jsonl", range(4))
    job = sealing(files("in", schema=SCHEMA))
    job.drain(NOW_US)
    (place.project / "in").rename(place.project / "unmounted")
    job.side.trim({"0": 2})
    assert len(job.store.items(SOURCE, 0, 9)) == 2


def test_a_sealed_path_that_leads_out_of_the_folder_is_refused(place: Place, sealing: Make) -> None:
    _put(place, "a.jsonl", range(4))
    job = sealing(files("in", schema=SCHEMA))
    advance = job.seal(NOW_US)
    [piece] = job.side.slices({"0": 0}, advance.positions)
    piece.detail["path"] = "../outside.jsonl"
    with pytest.raises(ConnectError) as caught:
        list(job.side.read(piece))
    assert caught.value.code == "LS0510"


@pytest.mark.parametrize(
    ("format", "header", "long", "reason"),
    [
        ("jsonl", b"", b'{"s": "' + b"x" * (3 << 20) + b'"}', "a record of more than 1 MB begins here"),
        ("csv", b"n,s\n", b"7," + b"x" * (3 << 20), "a record of more than 1 MB begins here"),
        (
            "csv",
            b"n,s\n",
            b'7,"open\n' + (b"8," + b"x" * 100_000 + b"\n") * 40,
            "a quote is opened here and not closed within 1 MB",
        ),
    ],
)
def test_a_record_without_an_end_costs_its_line_instead_of_the_memory_or_the_rest(
    place: Place, sealing: Make, monkeypatch: pytest.MonkeyPatch, format: Any, header: bytes, long: bytes, reason: str
) -> None:
    monkeypatch.setattr("lockstep.connect.sources.chunks.RECORD_BYTES_MAX", 1 << 20)
    line = _lines if format == "jsonl" else lambda numbers: b"".join(b"%d,x\n" % n for n in numbers)
    _put_bytes(place, f"a.{format}", header + line(range(2)) + long.removesuffix(b"\n") + b"\n" + line(range(2, 4)))
    job = sealing(files("in", schema=SCHEMA, format=format))
    numbers = [n for epoch in _numbers(job.drain(NOW_US, 2_000)) for n in epoch]
    assert numbers == [0, 1, *([8] * 40 if b"open" in long else []), 2, 3]
    [letter] = _letters(job)
    assert (letter.offset, letter.error.partition(" (")[0]) == (3 if format == "jsonl" else 4, reason)
