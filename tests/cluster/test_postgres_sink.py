"""The Postgres sink against a real server: every epoch once, whole and in order, whatever breaks when."""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep as ls
from lockstep import services
from lockstep.connect.protocols import ORDER, Output, Place, Publication, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks.postgres import FENCES_KEPT, ROWS_INSERTED_MAX, PostgresSinkSide
from lockstep.connect.sinks.postgres_server import Server, run
from lockstep.connect.specs import postgres as spec_of
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
from tests.unit.connect.sinks_for_connect import CHANGES, HOLDER, SCHEMA, changed, in_child, publish, rows_of, wanted

OTHER = Holder("r1", 7)
LARGE = ROWS_INSERTED_MAX + 50


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / ".lockstep", "job")


class Sink:
    """A table of its own in the shared server, opened as often as wanted."""

    def __init__(self, server: str, place: Place) -> None:
        self.server, self.place = server, place
        self.table = f"t_{uuid.uuid4().hex[:12]}"
        self.made: list[SinkSide] = []

    def open(self, schema: pa.Schema = SCHEMA, key: Any = None, **more: Any) -> PostgresSinkSide:
        spec = spec_of(more.pop("server", self.server), table=self.table, key=key)
        side = PostgresSinkSide(spec, more.pop("sink", "alerts"), more.pop("place", self.place), **more)
        self.made.append(side)
        side.open(schema)
        return side

    def read(self, epochs: Any = None) -> pa.Table:
        return ls.read(self.server, epochs, table=self.table)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        server = Server(self.server, "")
        try:
            cursor = server.patiently(lambda connection: run(connection, query.format(table=self.table)))
            return cursor.fetchall() if cursor.description else []
        finally:
            server.close()


@pytest.fixture
def sink(postgres: services.Service, place: Place) -> Iterator[Sink]:
    made = Sink(postgres.address, place)
    yield made
    for side in made.made:
        side.close()


def _die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _code(act: Any) -> str:
    with pytest.raises(ConnectError) as caught:
        act()
    return caught.value.code


def test_rows_and_fence_are_there_once_and_in_order(sink: Sink) -> None:
    first, second = sink.open(), sink.open()
    assert first.last_published() is None
    assert publish(first, 4).by == "r0.1"
    assert publish(second, 4, OTHER).by == "r0.1"
    assert publish(second, 5, OTHER, count=0).by == "r1.7"
    assert _code(lambda: publish(first, 7)) == "LS0507"
    assert (first.last_published(), first.publication(6)) == (5, None)
    assert first.rows(4) == rows_of(4) == sink.read() == sink.read([4, 5])
    assert sink.sql("SELECT n, s, lockstep_epoch FROM {table} LIMIT 1") == [(4000, "row 4000", 4)]
    assert sink.sql("SELECT epoch, digest FROM _lockstep_epochs WHERE table_name = '{table}' ORDER BY epoch") == [
        (4, "digest-4"),
        (5, "digest-5"),
    ]


def test_large_epochs_are_copied_from_memory_and_from_staged_files(sink: Sink) -> None:
    side = sink.open()
    publish(side, 0, count=LARGE)
    staged = []
    for task in range(2):
        stager = sink_side(spec_of(sink.server, table=sink.table), "alerts", sink.place).stager(1, HOLDER, task)
        stager.write(rows_of(task + 1).to_batches()[0])
        if (file := stager.finish()) is not None:
            staged.append(file)
    side.publish(wanted(1, rows=6), Output(SCHEMA, files=tuple(staged)), HOLDER)
    assert sink.read() == pa.concat_tables([rows_of(0, LARGE), rows_of(1), rows_of(2)]).combine_chunks()
    assert not any(Path(file.path).exists() for file in staged)


@pytest.mark.parametrize("copies", [1, LARGE], ids=["inserted", "copied"])
def test_every_type_comes_back_from_the_table(sink: Sink, copies: int) -> None:
    table = pa.table(
        {
            "flag": [True, None],
            "tiny": pa.array([-128, None], pa.int8()),
            "long": [2**63 - 1, None],
            "real": [math.inf, None],
            "float": pa.array([0.1, None], pa.float32()),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
            "day": pa.array([date(2024, 2, 29), None]),
            "at": pa.array([datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(1, 1, 1), None], pa.timestamp("us")),
            "raw": pa.array([b"\x00\xff\\", None]),
            "text": ["tab\t, line\n, \\N, 'quote' and ünïcode", None],
            "list": pa.array([[1, None], []]),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array(
                [{"x": [b"a"], "y": -math.inf}, None], pa.struct([("x", pa.list_(pa.binary())), ("y", pa.float64())])
            ),
            'odd "name", 100%': ["a", "b"],
        }
    )
    many = pa.concat_tables([table] * copies).combine_chunks()
    side = sink.open(table.schema)
    side.publish(wanted(0, rows=many.num_rows), Output(table.schema, many), HOLDER)
    found = sink.read()
    assert [name for name in many.column_names if not found[name].equals(many[name])] == []
    assert sink.sql("SELECT pg_typeof(at)::text, pg_typeof(price)::text, list, map->>'a' FROM {table} LIMIT 1") == [
        ("timestamp with time zone", "numeric", [1, None], "1")
    ]


def _keyed_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "a": chance.choice([None, 0, 1, 2]),
            "b": chance.choice([None, "", "x"]),
            "c": chance.choice([None, math.nan, 0.0, math.inf]),
            "v": chance.randrange(10**9),
        }
        for _ in range(count)
    ]


def test_upserts_agree_with_a_plain_dict_however_rows_come(sink: Sink) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("v", pa.int64())])
    chance, expected = random.Random(11), dict[str, tuple[int, int]]()
    side = sink.open(schema, key=("a", "b", "c"))
    for epoch, count in enumerate([5, LARGE, 40, 0, 3 * LARGE, 1]):
        rows = _keyed_rows(chance, count)
        expected |= {repr((row["a"], row["b"], row["c"])): (row["v"], epoch) for row in rows}
        output = Output(schema, pa.Table.from_pylist(rows, schema))
        if epoch == 4:
            output = _staged_in_order(side, schema, rows, chance)
        side.publish(wanted(epoch, rows=count), output, HOLDER)
    found = sink.sql("SELECT a, b, c, v, lockstep_epoch FROM {table}")
    assert len(found) == len(expected)
    assert {repr(row[:3]): row[3:] for row in found} == expected
    assert side.rows(1) is None


def test_rows_that_are_taken_back_are_deleted_in_the_same_act(sink: Sink) -> None:
    chance, held = random.Random(5), dict[Any, Any]()
    side = sink.open(CHANGES, key=("b", "a"))
    for epoch, count in enumerate([5, 5, 5, LARGE, LARGE, 9]):
        rows = pa.Table.from_pylist(changed(chance, held, count), CHANGES)
        side.publish(wanted(epoch, rows=rows.num_rows), Output(CHANGES, rows), HOLDER)
        found = sink.sql("SELECT a, b, v FROM {table}")
        assert len(found) == len(held)
        assert {row[:2]: row[2] for row in found} == held


def _staged_in_order(side: SinkSide, schema: pa.Schema, rows: list[dict[str, Any]], chance: random.Random) -> Output:
    """Rows that are spread over tasks at random; their hidden order says which is the newest."""
    ordered = schema.append(pa.field(ORDER, pa.string()))
    tasks: list[list[dict[str, Any]]] = [[], []]
    for number, row in enumerate(rows):
        chance.choice(tasks).append({**row, ORDER: f"{number:06}"})
    files = []
    for task, share in enumerate(tasks):
        stager = side.stager(4, HOLDER, task)
        stager.write(pa.RecordBatch.from_pylist(share, ordered))
        files.append(stager.finish())
    return Output(schema, files=tuple(file for file in files if file is not None))


def test_a_table_has_one_owner_one_shape_and_is_never_a_strangers(sink: Sink) -> None:
    sink.open().close()
    other_job = Place(sink.place.project, sink.place.home, "other")
    more = SCHEMA.append(pa.field("more", pa.int64()))
    assert _code(lambda: sink.open(sink="other")) == "LS0503"
    assert _code(lambda: sink.open(place=other_job)) == "LS0503"
    assert _code(lambda: sink.open(more)) == "LS0512"
    assert _code(lambda: sink.open(key="n")) == "LS0512"
    sink.sql("ALTER TABLE {table} ALTER COLUMN n TYPE numeric")
    assert _code(sink.open) == "LS0512"
    sink.sql("ALTER TABLE {table} ALTER COLUMN n TYPE bigint; ALTER TABLE {table} ADD COLUMN note text")
    publish(sink.open(), 0)
    sink.sql("UPDATE _lockstep_sinks SET format_version = 99 WHERE table_name = '{table}'")
    assert _code(sink.open) == "LS0502"
    sink.table = "strangers"
    sink.sql("CREATE TABLE IF NOT EXISTS strangers (x int)")
    assert _code(sink.open) == "LS0503"
    sink.table = "never_made"
    assert _code(sink.read) == "LS0513"


@pytest.mark.parametrize("count", [3, LARGE])
def test_killed_inside_the_transaction_the_epoch_is_absent_and_another_replica_takes_over(
    sink: Sink, count: int
) -> None:
    publish(sink.open(), 0)

    def act() -> None:
        dying = sink.open(clock=_die)  # it is asked between the rows and the fence
        publish(dying, 1, count=count)

    assert in_child(act) == -9
    assert sink.read() == rows_of(0)
    other = sink.open()
    assert publish(other, 1, OTHER, count).by == "r1.7"
    assert sink.read() == pa.concat_tables([rows_of(0), rows_of(1, count)]).combine_chunks()


def test_killed_between_the_commit_and_its_note_the_replay_finds_the_epoch_published(sink: Sink) -> None:
    def act() -> None:
        publish(sink.open(), 0)
        _die()

    assert in_child(act) == -9
    again, other = sink.open(), sink.open()
    assert publish(again, 0, Holder("r0", 2)).by == "r0.1"
    assert publish(other, 0, OTHER).by == "r0.1"
    assert publish(other, 1, OTHER).by == "r1.7"
    assert sink.read() == pa.concat_tables([rows_of(0), rows_of(1)]).combine_chunks()


def test_an_incarnation_whose_replica_has_published_since_is_refused(sink: Sink) -> None:
    zombie, successor = sink.open(), sink.open()
    publish(zombie, 0, Holder("r0", 1))
    publish(successor, 1, Holder("r0", 2))
    assert publish(zombie, 1, Holder("r0", 1)).by == "r0.2", "what is published is only looked at"
    assert _code(lambda: publish(zombie, 2, Holder("r0", 1))) == "LS0534"
    assert publish(successor, 2, Holder("r0", 2)).by == "r0.2"


class Cutting:
    """A way to the server that breaks off when the answer to a commit should come, as often as told."""

    def __init__(self, port: int, cuts: int) -> None:
        self._port, self.cuts = port, cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            threading.Thread(target=self._back, args=(server, client), daemon=True).start()
            with suppress(OSError):
                while data := client.recv(65536):
                    if b"COMMIT" in data and self.cuts:
                        self.cuts -= 1
                        client.shutdown(socket.SHUT_RDWR)
                        server.sendall(data)
                        server.recv(1)
                        return
                    server.sendall(data)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)


@pytest.mark.parametrize("count", [3, LARGE])
def test_a_commit_whose_answer_is_lost_is_found_by_its_fence(
    sink: Sink, postgres: services.Service, count: int
) -> None:
    sink.open().close()
    way = Cutting(postgres.nodes[0].port, cuts=0)
    # The password file names the server's own port.
    password = Path(postgres.address.partition("passfile=")[2]).read_text().strip().rpartition(":")[2]
    address = f"host=127.0.0.1 port={way.port} user=lockstep dbname=postgres"
    os.environ["PGPASSWORD"] = password
    try:
        side = sink.open(server=address)
        way.cuts = 1
        published = publish(side, 0, count=count)
        side.close()
    finally:
        del os.environ["PGPASSWORD"]
        way.close()
    assert way.cuts == 0
    assert (published.by, published.digest) == ("r0.1", "digest-0")
    assert sink.read() == rows_of(0, count)


def test_a_server_that_is_away_is_waited_for_and_then_named(sink: Sink, postgres: services.Service) -> None:
    side, impatient = sink.open(), sink.open(patience_s=0.2)
    publish(side, 0)
    node = postgres.nodes[0]
    node.kill()
    try:
        assert _code(lambda: publish(impatient, 1)) == "LS0533"
    finally:
        node.start()
    assert publish(side, 1).by == "r0.1"
    assert sink.read() == pa.concat_tables([rows_of(0), rows_of(1)]).combine_chunks()


def test_one_who_stands_still_with_the_lock_is_not_waited_for_forever(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockstep.connect.sinks import postgres_server

    quick = [each.replace("'5s'", "'500ms'") for each in postgres_server._SESSION]
    monkeypatch.setattr(postgres_server, "_SESSION", quick)
    inside, gate = threading.Event(), threading.Event()

    def stands_still() -> int:
        inside.set()
        gate.wait(20)
        return 1

    still, other = sink.open(clock=stands_still), sink.open()
    said: list[Publication] = []
    thread = threading.Thread(target=lambda: said.append(publish(still, 0)))
    thread.start()
    assert inside.wait(20)
    assert publish(other, 0, OTHER).by == "r1.7"
    gate.set()
    thread.join(30)
    assert [each.by for each in said] == ["r1.7"]
    assert sink.read() == rows_of(0)


def test_the_password_comes_from_the_environment_and_is_in_no_text(
    sink: Sink, postgres: services.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _, file = postgres.address.partition(" passfile=")
    password = Path(file).read_text().strip().rpartition(":")[2]
    spec = spec_of(address, table=sink.table, password_env="SHOP_PASSWORD")
    side = PostgresSinkSide(spec, "alerts", sink.place)
    assert _code(lambda: side.open(SCHEMA)) == "LS0532"
    monkeypatch.setenv("SHOP_PASSWORD", password)
    side.open(SCHEMA)
    publish(side, 0)
    side.close()
    assert password not in repr(spec) + spec.describe() + str(spec.to_json())
    monkeypatch.setenv("SHOP_PASSWORD", "wrong-password")
    with pytest.raises(ConnectError) as caught:
        PostgresSinkSide(spec, "alerts", sink.place).last_published()
    assert caught.value.code == "LS0533"
    assert "wrong-password" not in str(caught.value)


def test_a_row_that_postgres_cannot_hold_is_named_and_leaves_nothing(sink: Sink) -> None:
    side = sink.open()
    for count in (1, LARGE):
        table = pa.Table.from_pylist([{"n": 1, "s": "a\0b"}] * count, SCHEMA)
        assert _code(lambda table=table: side.publish(wanted(0), Output(SCHEMA, table), HOLDER)) == "LS0515"
    assert side.last_published() is None
    assert publish(side, 0).by == "r0.1"


def test_old_epochs_without_rows_become_runs_and_are_still_fenced(sink: Sink) -> None:
    side = sink.open()
    for epoch in range(FENCES_KEPT + 40):
        if epoch == 20:
            publish(side, epoch)
        else:
            empty = Publication(epoch, "nothing", 0, str(HOLDER), "v1", epoch_time_us=epoch)
            side.publish(empty, Output(SCHEMA, SCHEMA.empty_table()), HOLDER)
    fences = sink.sql("SELECT count(*) FROM _lockstep_epochs WHERE table_name = '{table}'")[0][0]
    assert fences < FENCES_KEPT + 6
    assert side.publication(7) == Publication(7, "nothing", 0, "", "v1")
    assert all(side.publication(epoch) is not None for epoch in range(0, FENCES_KEPT + 40, 9))
    assert side.rows(20) == rows_of(20)
