"""`lockstep dead-letters` on letters of files and of functions: listed, exported, put back exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.connect import put_back as putting
from lockstep.connect.disk import put_if_absent
from lockstep.connect.protocols import Place, Slice
from lockstep.connect.put_back import SOURCES, readings, sources_text
from lockstep.connect.registry import source_side
from lockstep.connect.sources.files import FilesSide
from lockstep.connect.specs import files, journal
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.dead_letters import HANDLED, DeadLetterWriter, Letter
from lockstep.store.journal import open_journal
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.cli.conftest import Call

JOB = "orders"
LINES = files("in", schema="n bigint", pattern="*.jsonl")
ROWS = files("rows", schema="n bigint, s string", format="csv")
CLICKS = journal("clicks", schema="user string, n bigint")
SPECS: dict[str, Any] = {"lines": LINES, "rows": ROWS, "clicks": CLICKS}
Keep = Callable[..., None]
NOW_US = 4_000_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / ".lockstep", JOB)
    opened.set_fact(SOURCES, sources_text(SPECS.items()))
    yield opened
    opened.close()


@pytest.fixture
def keep(tmp_path: Path, store: Store) -> Keep:
    del store
    writer = DeadLetterWriter(str(tmp_path / ".lockstep"), JOB)

    def keep(key: str, *letters: Letter) -> None:
        writer.keep(key, letters)

    return keep


def _line(number: int, record: str, file: str = "a.jsonl", source: str = "lines") -> Letter:
    return Letter(source, source, file, number, record, "it is not a number")


def _failed(source: str, offset: int, step: str = "parse") -> Letter:
    return Letter(step, source, "0", offset, "{}", "no", reading=readings(SPECS.items())[source])


def _sealed(tmp_path: Path, store: Store, spec: Any, source: str, files: dict[str, bytes]) -> None:
    """Files that a source has sealed into epoch 0, and read."""
    for name, data in files.items():
        path = tmp_path / spec.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    side = source_side(spec, Place(tmp_path, tmp_path / ".lockstep", JOB), source)
    advance = side.advance(side.start(), 100, NOW_US)
    store.seal(Entry(0, 1, {source: advance.positions}), store.begin("r0", 1), advance.items)
    for piece in side.slices(side.start(), advance.positions):
        list(side.read(piece))
    side.close()


def test_without_letters_it_says_so(lockstep: Call, store: Store) -> None:
    del store
    assert "orders has no dead letters" in lockstep("dead-letters").err


def test_letters_are_listed_with_place_reason_and_record(lockstep: Call, keep: Keep) -> None:
    keep("lines/0", _line(3, '{"n": "x"}'), _line(9, '{"n": "y"}'))
    keep("parse/0", Letter("parse", "clicks", "0", 12, '{"user": "ann"}', "ValueError: no"))
    said = lockstep("dead-letters", "--first", "2")
    assert "3 dead letters of orders wait, 0 were put back or dismissed" in said.err
    assert said.out.splitlines()[:3] == ["#0  lines: a.jsonl, line 3", "    it is not a number", '    {"n": "x"}']
    assert "and 1 more" in said.err
    assert "parse: record 12 of clicks, partition 0" in lockstep("dead-letters", "--step", "parse").out


def test_an_export_is_json_lines_and_replaces_nothing(lockstep: Call, keep: Keep, tmp_path: Path) -> None:
    keep("lines/0", _line(3, '{"n": "x"}'))
    assert lockstep("dead-letters", "--export", "bad.jsonl").code == 0
    (line,) = (tmp_path / "bad.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "step": "lines", "source": "lines", "partition": "a.jsonl", "offset": 3, "record": '{"n": "x"}',
        "error": "it is not a number", "reading": "", "raw": "", "number": 0,
    }  # fmt: skip
    again = lockstep("dead-letters", "--export", "bad.jsonl")
    assert (again.code, "LS0018" in again.err) == (2, True)
    assert lockstep("dead-letters", "--export", "-").out == line + "\n"


def test_lines_of_files_go_into_a_new_file_that_the_source_reads_once(
    lockstep: Call, keep: Keep, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"n": "x"}\n', encoding="utf-8")
    keep("lines/0", _line(1, '{"n": 5}'), _line(7, '{"n": 6}'))
    keep("rows/0", _line(3, "n,s\n1,a", "sub/b.csv", "rows"), _line(4, 'n,s\n2,"b\nc"', "sub/b.csv", "rows"))
    done = lockstep("dead-letters", "--put-back", "--json").json()
    assert (done["records"], done["stay"]) == (4, {})
    assert (tmp_path / "in" / "a.put-back-0.jsonl").read_text(encoding="utf-8") == '{"n": 5}\n{"n": 6}\n'
    assert (tmp_path / "rows/sub/b.put-back-2.csv").read_text(encoding="utf-8") == 'n,s\n1,a\n2,"b\nc"\n'
    assert lockstep("dead-letters", "--put-back", "--json").json()["records"] == 0
    assert len(list((tmp_path / "in").iterdir())) == 2
    side = source_side(ROWS, Place(tmp_path, tmp_path / ".lockstep", JOB), "rows")
    assert side.advance(side.start(), 100, NOW_US).records == 2
    side.close()


def test_a_put_back_that_was_killed_is_ended_by_the_next_and_doubles_nothing(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("lines/0", _line(1, '{"n": 5}'), _line(2, '{"n": 6}', "z.jsonl"))

    def killed(final: Path, temporary: Path, data: bytes) -> bool:
        if "z." in final.name:
            raise KeyboardInterrupt
        return put_if_absent(final, temporary, data)

    monkeypatch.setattr(putting, "put_if_absent", killed)
    assert lockstep("dead-letters", "--put-back").code != 0
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert json.loads(store.fact(HANDLED) or "") == [[[[0, 2]], "put-back", False]]
    keep("lines/1", _line(3, '{"n": 7}'))
    assert lockstep("dead-letters", "--put-back").code == 0
    texts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "in").iterdir()}
    assert texts == {
        "a.put-back-0.jsonl": '{"n": 5}\n',
        "z.put-back-1.jsonl": '{"n": 6}\n',
        "a.put-back-2.jsonl": '{"n": 7}\n',
    }
    assert all(done for _, _, done in json.loads(store.fact(HANDLED) or ""))


def test_what_cannot_be_put_back_stays_and_says_why(lockstep: Call, keep: Keep) -> None:
    keep("lines/0", _line(1, ""), _line(2, "{", "b.txt"), _line(3, "{", source="gone"))
    said = lockstep("dead-letters", "--put-back", "--json").json()
    assert said["records"] == 0
    assert [why.partition(";")[0] for why in said["stay"].values()] == [
        "it stands for a part of a file that cannot be read at all",
        "the source reads files like *.jsonl, and a new one beside b.txt is none",
        "its source takes no records back",
    ]
    assert "3 dead letters of orders wait" in lockstep("dead-letters").err


def test_a_record_of_a_function_goes_back_whole_and_only_if_asked(lockstep: Call, keep: Keep, tmp_path: Path) -> None:
    target = open_journal(tmp_path / ".lockstep", "clicks", parse_schema("user string, n bigint"))
    target.append(batch_from_pylist([{"user": name, "n": len(name)} for name in ("ann", "bo", "cy")], target.schema))
    keep("parse/1", _failed("clicks", 1))
    keep("parse/1b", _failed("clicks", 1, "parse again"))
    refused = lockstep("dead-letters", "--put-back")
    assert "2 stay: a function could not take it" in refused.err
    done = lockstep("dead-letters", "--put-back", "--whole-record", "--json").json()
    assert (done["records"], done["places"]) == (1, ["journal clicks"])
    lockstep("dead-letters", "--put-back", "--whole-record")
    assert [row for batch in target.read(0, 3, target.ends()[0]) for row in batch.to_pylist()] == [
        {"user": "bo", "n": 2}
    ]
    target.close()


def test_a_record_goes_back_into_a_journal_without_the_time_at_which_it_came_in(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store
) -> None:
    timed = journal("clicks", schema="user string, n bigint", timestamp_column="came")
    store.set_fact(SOURCES, sources_text([("clicks", timed)]))
    target = open_journal(tmp_path / ".lockstep", "clicks", parse_schema("user string, n bigint"))
    target.append(batch_from_pylist([{"user": "ann", "n": 3}, {"user": "bo", "n": 2}], target.schema))
    keep("parse/1", _failed("clicks", 1))
    assert lockstep("dead-letters", "--put-back", "--whole-record", "--json").json()["records"] == 1
    assert [row for batch in target.read(0, 2, 3) for row in batch.to_pylist()] == [{"user": "bo", "n": 2}]
    target.close()


def test_a_record_of_a_file_that_a_function_could_not_take_goes_into_a_new_file(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store
) -> None:
    _sealed(tmp_path, store, ROWS, "rows", {"a.csv": b's,n\nx,1\n"y, z",2\n'})
    keep("parse/1", _failed("rows", 1))
    lockstep("dead-letters", "--put-back", "--whole-record")
    assert (tmp_path / "rows" / "rows.put-back-0.csv").read_text(encoding="utf-8") == '"n","s"\n2,"y, z"\n'


def test_a_record_whose_place_means_another_one_now_stays(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store
) -> None:
    _sealed(tmp_path, store, ROWS, "rows", {"a.csv": b"n,s\nx,bad\n1,a\n2,b\n"})
    keep("parse/0", _failed("rows", 0), _failed("rows", 7))
    keep("parse/1", Letter("parse", "rows", "0", 0, "{}", "no"), Letter("bolt", "clicks", "0", 0, "{}", "no", "task"))
    mended = files("rows", schema="n string, s string", format="csv")
    store.set_fact(SOURCES, sources_text([("rows", mended), ("clicks", CLICKS)]))
    answer = lockstep("dead-letters", "--put-back", "--whole-record", "--step", "parse", "--json").json()
    assert (answer["records"], set(answer["stay"])) == (0, {"1", "2", "3"})
    store.set_fact(SOURCES, sources_text(SPECS.items()))
    answer = lockstep("dead-letters", "--put-back", "--whole-record", "--json").json()
    assert {number: why.partition(":")[0] for number, why in answer["stay"].items()} == {
        "2": "its record is gone",
        "3": "it was set aside by an older release, which did not note how its source was read",
        "4": "which record of its source it was cannot be told any more",
    }
    assert (tmp_path / "rows" / "rows.put-back-1.csv").read_text(encoding="utf-8") == '"n","s"\n1,"a"\n'


def test_a_line_that_is_no_text_goes_back_byte_by_byte(lockstep: Call, tmp_path: Path, store: Store) -> None:
    _sealed(tmp_path, store, ROWS, "rows", {"a.csv": b"n,s\n1,caf\xe9\n2,\\xe9\nx,\\xe9\n"})
    (letter, _) = lockstep("dead-letters", "--json").json()["letters"]
    assert letter["record"] == "n,s\n1,caf\\xe9"
    assert lockstep("dead-letters", "--put-back", "--json").json()["records"] == 2
    assert (tmp_path / "rows" / "a.put-back-0.csv").read_bytes() == b"n,s\n1,caf\xe9\nx,\\xe9\n"


def test_rows_of_files_with_other_headers_are_not_mixed(lockstep: Call, keep: Keep, tmp_path: Path) -> None:
    keep("rows/0", _line(2, "n,s\n1,a", "b.csv", "rows"))
    keep("rows/1", _line(2, '"s\ns",n\nb,2', "b.csv", "rows"))
    assert lockstep("dead-letters", "--put-back", "--json").json()["records"] == 2
    assert (tmp_path / "rows/b.put-back-0.csv").read_text(encoding="utf-8") == "n,s\n1,a\n"
    assert (tmp_path / "rows/b.put-back-1.csv").read_text(encoding="utf-8") == '"s\ns",n\nb,2\n'


def test_a_chunk_is_read_once_however_many_of_its_records_are_put_back(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sealed(tmp_path, store, ROWS, "rows", {"a.csv": b"n,s\n" + b"".join(b"%d,x\n" % n for n in range(20))})
    keep("parse/0", *(_failed("rows", offset) for offset in range(1, 20, 2)))
    read: list[int] = []
    whole = FilesSide.read

    def counted(side: FilesSide, piece: Slice) -> Iterator[Any]:
        read.append(piece.start)
        return whole(side, piece)

    monkeypatch.setattr(FilesSide, "read", counted)
    assert lockstep("dead-letters", "--put-back", "--whole-record", "--json").json()["records"] == 10
    assert read == [0]


def test_what_a_killed_put_back_cannot_end_waits_again_and_stops_nobody(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store
) -> None:
    target = open_journal(tmp_path / ".lockstep", "clicks", parse_schema("user string, n bigint"))
    target.append(batch_from_pylist([{"user": "ann", "n": 1}], target.schema))
    keep("parse/0", _failed("clicks", 9), _failed("clicks", 0), _line(1, '{"n": 5}'), _line(1, "{}", source="renamed"))
    store.set_fact(HANDLED, json.dumps([[[[0, 4]], "put-back", False]]))
    keep("lines/1", _line(3, '{"n": 7}'))
    answer = lockstep("dead-letters", "--put-back", "--json").json()
    assert (answer["records"], set(answer["stay"])) == (3, {"0", "3"})
    assert json.loads(store.fact(HANDLED) or "") == [[[[1, 3]], "put-back", True], [[[4, 5]], "put-back", True]]
    assert target.ends()[0] == 2
    target.append(batch_from_pylist([{"user": "bo", "n": n} for n in range(8)], target.schema))
    answer = lockstep("dead-letters", "--put-back", "--whole-record", "--json").json()
    assert (answer["records"], set(answer["stay"])) == (1, {"3"}), "what waited again goes back when it can"
    target.close()


def test_a_put_back_that_was_killed_after_its_append_is_done_although_its_record_is_gone(
    lockstep: Call, keep: Keep, tmp_path: Path, store: Store
) -> None:
    target = open_journal(tmp_path / ".lockstep", "clicks", parse_schema("user string, n bigint"))
    batch = batch_from_pylist([{"user": "ann", "n": 1}], target.schema)
    target.append(batch)
    keep("parse/0", _failed("clicks", 7), _failed("clicks", 0))
    target.append_once(batch, "orders.dead-letters/0")
    store.set_fact(HANDLED, json.dumps([[[[0, 2]], "put-back", False]]))
    assert lockstep("dead-letters", "--put-back", "--json").json()["stay"] == {}
    assert target.ends()[0] == 2
    target.close()


def test_letters_of_an_older_release_are_read_and_go_on(lockstep: Call, keep: Keep, tmp_path: Path) -> None:
    older = parse_schema("step string, source string, partition string, offset bigint, record string, error string")
    open_journal(tmp_path / ".lockstep", "orders.dead-letters", older).close()
    keep("lines/0", _line(1, '{"n": 5}'))
    assert lockstep("dead-letters", "--put-back", "--json").json()["records"] == 1


def test_dismissed_letters_wait_no_longer_and_can_still_be_seen(lockstep: Call, keep: Keep) -> None:
    keep("lines/0", _line(1, "{"), _line(2, "{"))
    keep("rows/0", _line(1, "n,s\nx", "b.csv", "rows"))
    assert lockstep("dead-letters", "--source", "lines", "--dismiss", "--json").json() == {"dismissed": 2, "open": 1}
    assert [one["source"] for one in lockstep("dead-letters", "--json").json()["letters"]] == ["rows"]
    assert len(lockstep("dead-letters", "--json", "--handled").json()["letters"]) == 3
    assert lockstep("dead-letters", "--dismiss", "--put-back").code == 2
