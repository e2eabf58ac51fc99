"""Nexmark, queries 0 to 8: the auction site's events as files, and the right answers in plain Python.

The queries and where they had to decide something: :mod:`benchmarks.nexmark.queries`. All of them are for
throughput: the events have times of their own and are there at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.engines.contract import Input, Records, Results, Row, SeenRow, Visibility, Wait
from benchmarks.engines.workloads.definition import Definition
from benchmarks.nexmark.generator import AUCTION, BID, PERSON, SCHEMA, Model, events
from lockstep.plan.schema import parse_schema

SOURCE = "nexmark"
MODEL = Model(events_per_s=1000)
"""A thousand events for each second of event time: 200,000 of them are twenty windows of ten seconds."""
EVENTS, EVENTS_QUICK = 200_000, 50_000
WINDOW_MS, HOP_MS = 10_000, 2_000


def text(at: datetime) -> str:
    """A time as it is in the files.

    >>> text(datetime(2015, 7, 15, 0, 0, 1, 5000, tzinfo=UTC))
    '2015-07-15T00:00:01.005Z'
    """
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def ms(at: str) -> int:
    """Milliseconds since 1970.

    >>> ms("1970-01-01T00:00:01.005Z")
    1005
    """
    return (datetime.fromisoformat(at) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def plain(event: Row) -> Row:
    """An event with its times as text."""
    return {
        name: plain(value) if isinstance(value, dict) else text(value) if isinstance(value, datetime) else value
        for name, value in event.items()
    }


def _of(records: Records, kind: int, name: str) -> Iterator[Row]:
    """The persons, auctions or bids, with ``at_ms``."""
    for event in records[SOURCE]:
        if event["event_type"] == kind:
            yield {**event[name], "at_ms": event["at_ms"]}


def _pick(rows: Sequence[Row] | Iterator[Row], *columns: str) -> list[Row]:
    return [{name: row[name] for name in columns} for row in rows]


def q0(records: Records) -> list[Row]:
    """The bids as they are."""
    return _pick(_of(records, BID, "bid"), "auction", "bidder", "price", "at_ms", "extra")


def q1(records: Records) -> list[Row]:
    """The bids in euros, as text with three digits after the point."""
    found = q0(records)
    for row in found:
        thousandths = row["price"] * 908
        row["price"] = f"{thousandths // 1000}.{thousandths % 1000:03d}"
    return found


def q2(records: Records) -> list[Row]:
    """The bids on every 123rd auction."""
    return _pick((bid for bid in _of(records, BID, "bid") if bid["auction"] % 123 == 0), "auction", "price")


def q3(records: Records) -> list[Row]:
    """Who in three states sells in category 10."""
    people = {one["id"]: one for one in _of(records, PERSON, "person") if one["state"] in ("OR", "ID", "CA")}
    sold = (one for one in _of(records, AUCTION, "auction") if one["category"] == 10 and one["seller"] in people)
    return [{**_pick([people[one["seller"]]], "name", "city", "state")[0], "id": one["id"]} for one in sold]


def winners(records: Records) -> list[Row]:
    """The auctions that ended with a bid, in the order of their ends, each with its highest."""
    opened = {one["id"]: {**one, "ends_ms": ms(one["expires"])} for one in _of(records, AUCTION, "auction")}
    highest: dict[int, int] = {}
    for bid in _of(records, BID, "bid"):
        auction = opened.get(bid["auction"])
        if auction is not None and auction["at_ms"] <= bid["at_ms"] <= auction["ends_ms"]:
            highest[bid["auction"]] = max(bid["price"], highest.get(bid["auction"], 0))
    won = [{**opened[number], "price": price} for number, price in highest.items()]
    return sorted(won, key=lambda one: (one["ends_ms"], one["id"]))


def q4(records: Records) -> list[Row]:
    """The average of the winning bids of each category."""
    prices: dict[int, list[int]] = defaultdict(list)
    for one in winners(records):
        prices[one["category"]].append(one["price"])
    return [{"category": category, "average": sum(all_) / len(all_)} for category, all_ in prices.items()]


def q5(records: Records) -> list[Row]:
    """The auctions with the most bids in ten seconds, every two seconds."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in _of(records, BID, "bid"):
        last = bid["at_ms"] - bid["at_ms"] % HOP_MS
        for start in range(last - WINDOW_MS + HOP_MS, last + 1, HOP_MS):
            counts[start + WINDOW_MS][bid["auction"]] += 1
    return [
        {"window_end_ms": end, "auction": auction, "bids": bids}
        for end, of_window in counts.items()
        for auction, bids in of_window.items()
        if bids == max(of_window.values())
    ]


def q6(records: Records) -> list[Row]:
    """The average of each seller's last ten winning bids, with each of them."""
    prices: dict[int, list[int]] = defaultdict(list)
    found = []
    for one in winners(records):
        last = prices[one["seller"]] = [*prices[one["seller"]], one["price"]][-10:]
        found.append({"seller": one["seller"], "auction": one["id"], "average": sum(last) / len(last)})
    return found


def q7(records: Records) -> list[Row]:
    """In every ten seconds the bids that nobody outbid."""
    windows: dict[int, list[Row]] = defaultdict(list)
    for bid in _of(records, BID, "bid"):
        windows[bid["at_ms"] // WINDOW_MS].append(bid)
    best = (
        bid
        for of_window in windows.values()
        for highest in [max(one["price"] for one in of_window)]
        for bid in of_window
        if bid["price"] == highest
    )
    return _pick(best, "auction", "bidder", "price", "at_ms", "extra")


def q8(records: Records) -> list[Row]:
    """Who registered and opened an auction within the same ten seconds."""
    sellers = {(one["seller"], one["at_ms"] // WINDOW_MS) for one in _of(records, AUCTION, "auction")}
    return [
        {"id": one["id"], "name": one["name"], "window_start_ms": one["at_ms"] // WINDOW_MS * WINDOW_MS}
        for one in _of(records, PERSON, "person")
        if (one["id"], one["at_ms"] // WINDOW_MS) in sellers
    ]


def _record(seq: int, sent_us: int, event: Row) -> Row:
    made = plain(event)
    return {"seq": seq, "sent_us": sent_us, "at_ms": ms(made["at"]), **made}


class NoWaits:
    """Events that have times of their own were not sent at any time that a result could have waited since."""

    def waits_ms(self, seen_rows: Sequence[SeenRow]) -> list[Wait]:
        """None."""
        del seen_rows
        return []


@dataclass(frozen=True)
class Nexmark(Definition):
    """One query."""

    def records(self, source: str, first: int, count: int, sent_us: int) -> list[Row]:
        """Events from a number on, made in blocks."""
        del source
        made = events(MODEL, first, count)
        return [_record(first + index, sent_us, event) for index, event in enumerate(made)]

    def closing(self, source: str, first: int, sent_us: int) -> list[Row]:
        """A person who registers an hour after the last event: every window and auction before is over."""
        del source
        last_s = int(MODEL.begin_us / 1e6 + first / MODEL.events_per_s)
        at = datetime.fromtimestamp(last_s, UTC) + timedelta(hours=1)
        empty = dict.fromkeys(("name", "email_address", "credit_card", "city", "extra"), "")
        person = {"id": 999_999_999, "state": "ZZ", "at": at, **empty}
        event = {"event_type": PERSON, "at": at, "person": person, "auction": None, "bid": None}
        return [_record(first, sent_us, event)]

    def visible(self, records: Records) -> Visibility:
        """Nothing to wait for."""
        del records
        return NoWaits()


_ANSWERS: dict[str, tuple[Callable[[Records], list[Row]], Results, str, str, str]] = {
    "q0": (q0, Results.EACH, "auction bidder price at_ms extra", "", "pass the bids through"),
    "q1": (q1, Results.EACH, "auction bidder price at_ms extra", "", "bids in euros"),
    "q2": (q2, Results.EACH, "auction price", "", "the bids on every 123rd auction"),
    "q3": (q3, Results.EACH, "name city state id", "", "join auctions of a category with sellers of three states"),
    "q4": (q4, Results.REVISIONS, "category average", "category", "average winning bid by category"),
    "q5": (q5, Results.FINAL, "window_end_ms auction bids", "", "auctions with the most bids in sliding windows"),
    "q6": (q6, Results.FINAL, "seller auction average", "auction", "average of each seller's last ten winning bids"),
    "q7": (q7, Results.FINAL, "auction bidder price at_ms extra", "", "highest bids in every ten seconds"),
    "q8": (q8, Results.FINAL, "id name window_start_ms", "", "who registered and sold within ten seconds"),
}


def nexmark(query: str, *, quick: bool) -> Nexmark:
    """One query as a workload.

    >>> nexmark("q2", quick=True).title
    'Nexmark q2'
    """
    reference, results, columns, key, steps = _ANSWERS[query]
    number = (("seq", "bigint"), ("sent_us", "bigint"), ("at_ms", "bigint"))
    return Nexmark(
        name=f"nexmark_{query}",
        title=f"Nexmark {query}",
        inputs=(
            Input(
                SOURCE, MODEL.events_per_s, (*number, *((one.name, one.type) for one in parse_schema(SCHEMA).fields))
            ),
        ),
        steps=steps,
        results=results,
        columns=tuple(columns.split()),
        key=tuple(key.split()),
        make=lambda _source, _seq, _sent_us: {},
        reference=reference,
        bounded_records=EVENTS_QUICK if quick else EVENTS,
    )


QUERIES = tuple(_ANSWERS)
