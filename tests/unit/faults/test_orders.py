"""Orders: given whole, claimed once, and harmless if they cannot be read."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from lockstep.errors import RunError
from lockstep.faults.orders import Harm, Order, Orders, StoreOrder, Window, WindowOrder

ORDERS: list[Order] = [
    WindowOrder("kill-it", Window.RUN_NO_DIGEST, Harm.KILL_JVM, "r1", from_epoch=7, leading=True),
    StoreOrder("slow", until_us=99, operations=("seal", "head"), delay_s=0.5, error="LS0413", after=True, times_max=3),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
def test_an_order_is_read_as_it_was_given(tmp_path: Path, order: Order) -> None:
    Orders(tmp_path).give(order)
    assert Orders(tmp_path).pending() == [order]


def _claims(folder: str, start: object, count: int) -> None:
    orders = Orders(Path(folder))
    start.wait()  # type: ignore[attr-defined]
    won = [name for name in (f"order-{number}" for number in range(count)) if orders.claim(name)]
    (Path(folder) / f"won-{multiprocessing.current_process().pid}").write_text(json.dumps(won))


def test_exactly_one_of_several_processes_obeys_an_order(tmp_path: Path) -> None:
    orders, count = Orders(tmp_path), 40
    for number in range(count):
        orders.give(WindowOrder(f"order-{number}", Window.SEALED_NOT_RUN))
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    processes = [context.Process(target=_claims, args=(str(tmp_path), start, count)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    won = [name for path in tmp_path.glob("won-*") for name in json.loads(path.read_text())]
    assert sorted(won) == sorted(f"order-{number}" for number in range(count))


def test_a_number_of_times_is_counted_over_everybody(tmp_path: Path) -> None:
    order = StoreOrder("thrice", until_us=0, times_max=3)
    one, other = Orders(tmp_path), Orders(tmp_path)
    assert [one.claim_one_of(order), other.claim_one_of(order), one.claim_one_of(order)] == [True] * 3
    assert not other.claim_one_of(order)


def test_an_order_that_was_taken_back_is_obeyed_by_nobody(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.give(WindowOrder("never", Window.SEALED_NOT_RUN))
    assert orders.take_back("never")
    assert orders.pending() == []
    assert not orders.claim("never")


def test_a_name_is_used_once_also_after_it_was_obeyed(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.give(WindowOrder("once", Window.SEALED_NOT_RUN))
    orders.claim("once")
    with pytest.raises(RunError, match="LS0671"):
        orders.give(WindowOrder("once", Window.SEALED_NOT_RUN))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"kind": "window", "name": "bad", "window": "no-such-window"}',
        '{"kind": "window", "name": "bad", "window": "sealed-not-run", "replcia": "r0"}',
        '{"kind": "window", "name": "other", "window": "sealed-not-run"}',
        '{"kind": "store", "name": "bad", "until_us": 5, "error": "LS0999"}',
        '{"kind": "flood", "name": "bad"}',
    ],
)
def test_an_order_that_means_nothing_is_put_away_and_said(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders(tmp_path)
    (tmp_path / "orders" / "bad.json").write_text(text)
    orders.give(WindowOrder("good", Window.SEALED_NOT_RUN))
    assert [order.name for order in orders.pending()] == ["good"]
    assert (tmp_path / "refused" / "bad.json").read_text() == text
    assert "LS0671" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "../up", "a b", "x.json"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        WindowOrder(name, Window.SEALED_NOT_RUN)
