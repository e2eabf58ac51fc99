"""The process functions of the Nexmark queries, without Spark."""

from __future__ import annotations

import random
import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.nexmark.generator import BID_FIELDS
from benchmarks.nexmark.queries import LastTen, TopTen, WinningBid
from lockstep.api.loading import load_job
from lockstep.keyed.tester import ProcessTester

JOB = str(Path(__file__).resolve().parents[3] / "benchmarks" / "nexmark" / "job.py")

START = datetime(2026, 1, 1, tzinfo=UTC)
TRADES = "at timestamp, auction bigint, price bigint, seller bigint, category bigint, expires timestamp"
WON = "auction bigint, seller bigint, category bigint, price bigint, expires timestamp"


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _bid(seconds: float, price: int, auction: int = 1) -> dict[str, Any]:
    return {"at": _at(seconds), "auction": auction, "price": price}


def _auction(begin: float, end: float, auction: int = 1) -> dict[str, Any]:
    return {"at": _at(begin), "auction": auction, "seller": 7, "category": 10, "expires": _at(end)}


def _winning() -> ProcessTester:
    return ProcessTester(WinningBid(), TRADES, schema=WON, key="auction", time="at")


def test_the_highest_bid_while_the_auction_was_open_wins_when_it_is_over() -> None:
    tester = _winning()
    assert (
        tester.send(_bid(1, 900), _auction(2, 10), _bid(2, 100), _bid(10, 300), _bid(10.000001, 800), _bid(5, 200))
        == []
    )
    assert tester.move_watermark(_at(10)) == [], "a bid at the very end can still come"
    won = {"auction": 1, "seller": 7, "category": 10, "price": 300, "expires": _at(10)}
    assert tester.move_watermark(_at(10.000001)) == [won]
    assert tester.state(1) == {}


def test_bids_that_come_before_their_auction_count_if_they_were_made_after_it() -> None:
    tester = _winning()
    tester.send(_bid(1, 900), _bid(4, 400))
    tester.send(_auction(2, 10))
    assert [row["price"] for row in tester.move_watermark(_at(11))] == [400]


def test_an_auction_without_a_bid_has_no_winner_and_bids_without_an_auction_are_forgotten() -> None:
    tester = _winning()
    tester.send(_auction(2, 10), _bid(3, 5, auction=2))
    assert tester.move_watermark(_at(11)) == []
    assert tester.keys() == [(2,)]
    tester.pass_time("2 hours")
    assert tester.keys() == []


def test_a_sellers_average_is_of_the_last_ten_to_end_in_whatever_order_they_come() -> None:
    schema = "seller bigint, auction bigint, average double"
    tester = ProcessTester(LastTen(), WON, schema=schema, key="seller", time="expires")
    chance = random.Random(1)
    prices = [chance.randrange(1000) for _ in range(25)]
    # Two auctions end in each second: then their numbers decide.
    rows = [
        {"auction": n, "seller": 7, "category": 1, "price": price, "expires": _at(n // 2)}
        for n, price in enumerate(prices)
    ]
    chance.shuffle(rows)
    tester.send(*rows[:7])
    tester.send(*rows[7:])
    tester.move_watermark(_at(6))
    tester.move_watermark(_at(30))
    averages = [sum(prices[max(0, n - 9) : n + 1]) / min(n + 1, 10) for n in range(25)]
    assert [(row["auction"], row["average"]) for row in tester.emitted] == list(enumerate(averages))


def test_places_that_change_hands_are_given_and_the_newest_of_each_are_the_top_ten() -> None:
    tester = ProcessTester(TopTen(), BID_FIELDS, schema=f"{BID_FIELDS}, place int", key="auction", time="at")
    chance = random.Random(3)
    bids: list[dict[str, Any]] = [
        {
            "auction": n % 2,
            "bidder": n,
            "price": chance.randrange(20),
            "channel": "",
            "url": "",
            "at": _at(n),
            "extra": "",
        }
        for n in range(60)
    ]
    for first in range(0, 60, 13):
        tester.send(*bids[first : first + 13])
    newest = {(row["auction"], row["place"]): row["bidder"] for row in tester.emitted}
    for auction in (0, 1):
        mine = sorted((bid for bid in bids if bid["auction"] == auction), key=lambda bid: (-bid["price"], bid["at"]))
        assert [newest[auction, place] for place in range(1, 11)] == [bid["bidder"] for bid in mine[:10]]
    assert len(tester.emitted) < 60 * 10


def test_one_query_can_be_chosen_and_an_unknown_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXMARK", "q3,q8")
    assert {sink.id for sink in load_job(JOB).job.graph().sinks} >= {"q3", "q8"}
    monkeypatch.setenv("NEXMARK", "q99")
    with pytest.raises(SystemExit, match="q99"):
        runpy.run_path(JOB)
