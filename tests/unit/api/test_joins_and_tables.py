"""What is refused in a join, and with which words; tables in files, and their copies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep as ls
from lockstep.connect.tables import TABLES, Copies, copies_in, copy_tables, look_in
from lockstep.errors import LockstepError
from lockstep.plan.draw import words
from lockstep.plan.encode import step_json
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.store.sqlite_store import open_store

BETWEEN = ("-5 minutes", "10 minutes")


class Shop:
    """A job with two streams that could be joined."""

    def __init__(self) -> None:
        self.job = ls.Job("shop")
        orders = self.job.source("orders", ls.journal("orders", schema="order_id bigint, item string, at timestamp"))
        paid = self.job.source("paid", ls.journal("paid", schema="id bigint, cents bigint, paid_at timestamp"))
        self.untimed = orders
        self.orders = orders.event_time("at", name="ordered")
        self.paid = paid.event_time("paid_at", name="paid_time")


@pytest.fixture
def shop() -> Shop:
    return Shop()


def refused(code: str, make: Callable[[], object]) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        make()
    assert caught.value.code == code
    return caught.value


def test_a_join_has_the_keys_once_then_the_left_columns_then_the_right_ones(shop: Shop) -> None:
    joined = shop.orders.join(shop.paid, on={"order_id": "id"}, between=BETWEEN)
    assert joined.columns == ("order_id", "item", "at", "cents", "paid_at")
    windowed = shop.orders.join(shop.paid, on={"order_id": "id"}, window=ls.tumbling("1 minute"))
    assert windowed.columns == ("order_id", "window_start", "window_end", "item", "at", "cents", "paid_at")


def test_a_join_of_streams_without_a_time_bound_is_refused_with_the_fix(shop: Shop) -> None:
    error = refused("LS0182", lambda: shop.orders.join(shop.paid, on={"order_id": "id"}))
    assert "grow" in error.why and "between=" in error.hint and "window=" in error.hint


def test_bounds_may_be_negative_texts_or_timedeltas_but_not_in_the_wrong_order(shop: Shop) -> None:
    on = {"order_id": "id"}
    step = shop.orders.join(shop.paid, on=on, between=(timedelta(seconds=-1), "+ 2 seconds"))._step
    assert "-1 second to 2 seconds after it" in words(step)
    refused("LS0182", lambda: shop.orders.join(shop.paid, on=on, between=("10 minutes", "-5 minutes")))
    refused("LS0182", lambda: shop.orders.join(shop.paid, on=on, between=("0 s", "1 us")))
    refused("LS0182", lambda: shop.orders.join(shop.paid, on=on, between="5 minutes"))  # type: ignore[arg-type]
    refused("LS0182", lambda: shop.orders.join(shop.paid, on=on, between=BETWEEN, window=ls.tumbling("1 s")))
    refused("LS0103", lambda: shop.orders.join(shop.paid, on=on, between=("5", "6")))


def test_both_streams_need_an_event_time(shop: Shop) -> None:
    error = refused("LS0181", lambda: shop.untimed.join(shop.paid, on={"order_id": "id"}, between=BETWEEN))
    assert 'left stream of step "join", "orders"' in error.fact
    refused("LS0181", lambda: shop.paid.join(shop.untimed, on={"id": "order_id"}, between=BETWEEN))


@pytest.mark.parametrize("on", [None, [], 7, [1], {"order_id": 1}])
def test_a_join_without_a_key_by_name_is_refused(shop: Shop, on: Any) -> None:
    refused("LS0180", lambda: shop.orders.join(shop.paid, on=on, between=BETWEEN))


def test_unknown_keys_name_the_side_and_its_columns(shop: Shop) -> None:
    assert "cents" in refused("LS0107", lambda: shop.orders.join(shop.paid, on="order_id", between=BETWEEN)).why
    assert "item" in refused("LS0107", lambda: shop.orders.join(shop.paid, on="id", between=BETWEEN)).why


def test_columns_of_equal_name_are_refused_or_get_suffixes_also_when_one_is_the_key(shop: Shop) -> None:
    other = shop.paid.rename(cents="Item", paid_at="at", name="renamed")
    error = refused("LS0183", lambda: shop.orders.join(other, on={"order_id": "id"}, between=BETWEEN))
    assert "Item, at" in error.fact and ".rename(" in error.hint
    joined = shop.orders.join(other, on={"order_id": "id"}, between=BETWEEN, suffixes=("", "_paid"))
    assert joined.columns == ("order_id", "item", "at", "Item_paid", "at_paid")
    keyed = shop.paid.rename(cents="order_id", name="renamed_2")
    joined = shop.orders.join(keyed, on={"order_id": "id"}, between=BETWEEN, suffixes=("_l", "_r"))
    assert joined.columns == ("order_id", "item", "at", "order_id_r", "paid_at")
    refused("LS0132", lambda: shop.orders.join(other, on={"order_id": "id"}, between=BETWEEN, suffixes=("", "")))
    refused("LS0183", lambda: shop.orders.join(other, on="at", between=BETWEEN, suffixes="_x"))  # type: ignore[arg-type]


def test_what_is_no_stream_of_this_job_cannot_be_joined(shop: Shop) -> None:
    on = {"order_id": "id"}
    assert 'ls.table("x.csv")' in refused("LS0180", lambda: shop.orders.join("x.csv", on=on)).hint  # type: ignore[arg-type]
    refused("LS0180", lambda: shop.orders.join(ls.rate(1), on=on))
    refused("LS0180", lambda: shop.orders.join(shop.paid, on=on, between=BETWEEN, how="outer"))  # type: ignore[arg-type]
    refused("LS0136", lambda: shop.orders.join(Shop().paid, on=on, between=BETWEEN))


def test_windows_that_two_streams_cannot_share_are_refused(shop: Shop) -> None:
    windows: list[Any] = ["1 minute", ls.session("1 minute")]
    for window in windows:
        refused("LS0185", partial(shop.orders.join, shop.paid, on={"order_id": "id"}, window=window))
    left, right = shop.orders.key_by("order_id"), shop.paid.key_by("id")
    made = left.co_group(right).window(ls.session("1 minute"))  # type: ignore[arg-type]
    refused("LS0185", lambda: made.apply(lambda *_: [], schema="n bigint"))


def test_a_co_group_wants_a_stream_by_key_event_time_a_function_and_a_schema(shop: Shop) -> None:
    left, right = shop.orders.key_by("order_id"), shop.paid.key_by("id")
    refused("LS0180", lambda: left.co_group(shop.paid))  # type: ignore[arg-type]
    minute = left.co_group(right).window(ls.tumbling("1 minute"))
    refused("LS0131", lambda: minute.apply(lambda *_: []))
    refused("LS0131", lambda: minute.apply("no", schema="n bigint"))  # type: ignore[arg-type]
    refused("LS0133", lambda: left.co_group(right).agg)  # type: ignore[attr-defined]
    two = left.co_group(shop.paid.key_by("id", "cents")).window(ls.tumbling("1 minute"))
    refused("LS0180", lambda: two.apply(lambda *_: [], schema="n bigint"))
    untimed = shop.untimed.key_by("order_id").co_group(right).window(ls.tumbling("1 minute"))
    refused("LS0181", lambda: untimed.apply(lambda *_: [], schema="n bigint"))
    assert minute.apply(lambda *_: [], schema="n bigint").columns == ("n",)


def test_other_bounds_do_not_go_on_from_an_older_checkpoint() -> None:
    def graph(between: tuple[str, str]) -> Graph:
        shop = Shop()
        shop.orders.join(shop.paid, on={"order_id": "id"}, between=between).to(ls.files("out"))
        return shop.job.graph()

    old = graph(BETWEEN).fingerprint()
    assert differences(old, graph(BETWEEN).fingerprint()) == []
    changed = differences(old, graph(("-5 minutes", "11 minutes")).fingerprint())
    assert changed == ['"join": upper us was 600000000, is 660000000']


CUSTOMERS = "customer_id bigint, name string"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    look_in(tmp_path)
    yield tmp_path
    look_in(Path())


def customers(folder: Path, *names: str) -> None:
    table = pa.table({"customer_id": list(range(len(names))), "name": list(names)})
    pq.write_table(table, folder / "customers.parquet")


def test_a_table_adds_its_columns_to_a_stream(folder: Path, shop: Shop) -> None:
    customers(folder, "ann")
    joined = shop.untimed.join(ls.table("customers.parquet"), on={"order_id": "customer_id"}, how="left")
    assert joined.columns == ("order_id", "item", "at", "name")
    assert joined._step.schema_hint is not None
    assert joined._step.schema_hint.ddl() == "order_id bigint, item string, at timestamp, name string"
    assert json.loads(json.dumps(step_json(joined._step)))["table"]["path"] == "customers.parquet"


def test_a_join_with_a_table_has_no_time_bound_and_is_inner_or_left(folder: Path, shop: Shop) -> None:
    customers(folder, "ann")
    table, on = ls.table("customers.parquet"), {"order_id": "customer_id"}
    refused("LS0182", lambda: shop.untimed.join(table, on=on, between=BETWEEN))
    refused("LS0180", lambda: shop.untimed.join(table, on=on, how="full"))
    refused("LS0107", lambda: shop.untimed.join(table, on="order_id"))
    assert "bigint" in refused("LS0184", lambda: shop.untimed.join(table, on={"item": "customer_id"})).fact


def test_csv_and_json_lines_need_a_schema_and_parquet_has_its_own(folder: Path) -> None:
    (folder / "c.csv").write_text("customer_id,name\n1,ann\n", encoding="utf-8")
    (folder / "c.jsonl").write_text('{"customer_id": 1, "name": "ann"}\n', encoding="utf-8")
    for name in ("c.csv", "c.jsonl"):
        assert "schema=" in refused("LS0187", partial(ls.table, name)).hint
        assert ls.table(name, schema=CUSTOMERS).rows().to_pylist() == [{"customer_id": 1, "name": "ann"}]
    pq.write_table(
        pa.table({"big": pa.array([1], pa.uint32()), "t": pa.array([0], pa.timestamp("ns"))}), folder / "x.pq"
    )
    assert ls.table("x.pq").schema.ddl() == "big bigint, t timestamp_ntz"
    assert ls.table("x.pq", schema="big bigint").rows().to_pylist() == [{"big": 1}]


def test_a_table_that_is_missing_or_unreadable_says_so(folder: Path) -> None:
    assert str(folder) in refused("LS0186", lambda: ls.table("no.parquet")).why
    (folder / "odd.txt").write_text("x", encoding="utf-8")
    refused("LS0186", lambda: ls.table("odd.txt"))
    (folder / "broken.parquet").write_text("x", encoding="utf-8")
    refused("LS0187", lambda: ls.table("broken.parquet"))
    (folder / "c.csv").write_text("customer_id,name\nnone,ann\n", encoding="utf-8")
    assert "c.csv" in refused("LS0187", lambda: ls.table("c.csv", schema=CUSTOMERS).rows()).why
    pq.write_table(pa.table({"t": pa.array([1], pa.time64("us"))}), folder / "time.parquet")
    assert "time64" in refused("LS0187", lambda: ls.table("time.parquet")).why


def test_a_folder_is_a_table_of_all_its_files_if_they_are_of_one_format(folder: Path) -> None:
    parts = folder / "parts"
    parts.mkdir()
    for number in (2, 1):
        (parts / f"{number}.csv").write_text(f"customer_id,name\n{number},x\n", encoding="utf-8")
    (parts / "_SUCCESS").touch()
    assert [row["customer_id"] for row in ls.table("parts", schema=CUSTOMERS).rows().to_pylist()] == [1, 2]
    (parts / "more.jsonl").touch()
    refused("LS0186", lambda: ls.table("parts", format="csv", schema=CUSTOMERS).rows())


def test_replicas_read_the_copy_and_a_changed_file_counts_from_the_next_start_on(folder: Path) -> None:
    store, copies = open_store(folder / ".lockstep", "shop"), folder / "copies"
    customers(folder, "ann")
    first = copy_tables([ls.table("customers.parquet")], store, copies)
    customers(folder, "bob", "eve")
    look_in(folder, copies_in(store, copies))
    in_replica = ls.table("customers.parquet")
    assert in_replica.copy == first.of(in_replica.key)
    assert pq.read_table(in_replica.copied_rows).to_pylist() == [{"customer_id": 0, "name": "ann"}]
    (folder / "customers.parquet").unlink()
    assert ls.table("customers.parquet").schema == in_replica.schema
    look_in(folder)
    customers(folder, "bob", "eve")
    second = copy_tables([ls.table("customers.parquet")], store, copies)
    assert first.with_code("code") != second.with_code("code") != "code"
    assert copies_in(store, copies) == second
    assert [kind for _, _, kind, _, _ in store.events()] == ["table-changed"]
    third = copy_tables([ls.table("customers.parquet")], store, copies)
    assert third == second
    assert [path.name for path in copies.iterdir()] == list(second.hashes.values()), "older copies are removed"
    store.close()


def test_without_tables_a_version_is_that_of_the_code(folder: Path) -> None:
    store = open_store(folder / ".lockstep", "shop")
    assert copy_tables([], store, folder / "copies") == Copies(folder / "copies")
    assert Copies(folder).with_code("code") == "code"
    assert store.fact(TABLES) is None
    store.close()
