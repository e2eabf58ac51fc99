"""What each Nexmark query has to give over a set of events, by DuckDB.

Tables: ``person``, ``auction``, ``bid``, each with ``epoch_time``, the time of the epoch that the record came in.
``$watermark`` is how far event time has come in the end: windows and auctions that end later give nothing yet.
``$now`` is the last epoch's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

WINNERS = """
    select a.id as auction, a.seller, a.category, a.expires, max(b.price) as price
    from auction a join bid b on b.auction = a.id and b."at" between a."at" and a.expires
    where a.expires < $watermark
    group by all
"""

ANSWERS = {
    "q0": 'select auction, bidder, price, "at", extra from bid',
    "q1": 'select auction, bidder, cast(price * 0.908 as decimal(23, 3)) as price, "at", extra from bid',
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id
        from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": f"select category, avg(price) as average from ({WINNERS}) group by category",
    "q5": """
        with hops as (
            select auction, unnest(generate_series(
                time_bucket(interval 2 second, "at") - interval 8 second, time_bucket(interval 2 second, "at"),
                interval 2 second)) as window_start
            from bid
        ), counts as (select auction, window_start, count(*) as bids from hops group by all)
        select window_start + interval 10 second as window_end, auction, bids from counts
        where window_start + interval 10 second <= $watermark
        qualify bids = max(bids) over (partition by window_start)
    """,
    "q6": f"""
        select seller, auction, avg(price) over (
            partition by seller order by expires, auction rows between 9 preceding and current row) as average
        from ({WINNERS})
    """,
    "q7": """
        select auction, bidder, price, "at", extra from bid
        where time_bucket(interval 10 second, "at") + interval 10 second <= $watermark
        qualify price = max(price) over (partition by time_bucket(interval 10 second, "at"))
    """,
    "q8": """
        select distinct p.id, p.name, time_bucket(interval 10 second, p."at") as window_start
        from person p join auction a
            on a.seller = p.id and time_bucket(interval 10 second, a."at") = time_bucket(interval 10 second, p."at")
        where time_bucket(interval 10 second, p."at") + interval 10 second <= $watermark
    """,
    "q11": """
        with gaps as (
            select bidder, "at", "at" - lag("at") over (partition by bidder order by "at") as gap from bid
        ), numbered as (
            select bidder, "at", count(*) filter (gap >= interval 10 second) over (
                partition by bidder order by "at" rows unbounded preceding) as session
            from gaps
        )
        select bidder, count(*) as bids, min("at") as window_start, max("at") + interval 10 second as window_end
        from numbered group by bidder, session having max("at") + interval 10 second <= $watermark
    """,
    "q12": """
        select bidder, time_bucket(interval 10 second, epoch_time) as window_start, count(*) as bids
        from bid where time_bucket(interval 10 second, epoch_time) + interval 10 second <= $now group by all
    """,
    "q17": """
        select auction, strftime("at", '%Y-%m-%d') as day, count(*) as bids,
            count(*) filter (price < 10000) as low, count(*) filter (price >= 10000 and price < 1000000) as middle,
            count(*) filter (price >= 1000000) as high,
            min(price) as lowest, max(price) as highest, avg(price) as average, cast(sum(price) as bigint) as total
        from bid group by all
    """,
    "q18": """
        select auction, bidder, price, channel, url, "at", extra from bid
        qualify row_number() over (partition by bidder, auction order by "at" desc) = 1
    """,
    "q19": """
        select auction, bidder, price, channel, url, "at", extra,
            row_number() over (partition by auction order by price desc, "at") as place
        from bid qualify place <= 10
    """,
    "q20": """
        select b.auction, b.bidder, b.price, b.channel, b.url, b."at" as bid_at, b.extra as bid_extra, a.item_name,
            a.description, a.initial_bid, a.reserve, a."at" as auction_at, a.expires, a.seller, a.category,
            a.extra as auction_extra
        from bid b join auction a on b.auction = a.id where a.category = 10
    """,
}


class Reference:
    """The events of a run, epoch by epoch, in a database of their own."""

    def __init__(self, epochs: Sequence[tuple[datetime, Sequence[dict[str, Any]]]], watermark: datetime) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("set timezone = 'UTC'")
        for kind, name in enumerate(("person", "auction", "bid")):
            rows = [
                {**_naive(event[name]), "epoch_time": time.replace(tzinfo=None)}
                for time, events in epochs
                for event in events
                if event["event_type"] == kind
            ]
            self._connection.register("rows", pa.Table.from_pylist(rows))
            self._connection.execute(f"create table {name} as select * from rows")
        self._times = {"watermark": watermark.replace(tzinfo=None), "now": epochs[-1][0].replace(tzinfo=None)}

    def answer(self, query: str) -> list[dict[str, Any]]:
        """The rows that a query has to give, in any order."""
        text = ANSWERS[query]
        wanted = {name: time for name, time in self._times.items() if f"${name}" in text}
        rows: list[dict[str, Any]] = self._connection.sql(text, params=wanted).to_arrow_table().to_pylist()
        return rows

    def close(self) -> None:
        """Give the database back."""
        self._connection.close()


def _naive(record: dict[str, Any]) -> dict[str, Any]:
    """Times without a zone: DuckDB's buckets of zoned times depend on the session's zone."""
    return {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in record.items()
    }


def sentinel(at: datetime) -> dict[str, Any]:
    """A person who registers so much later that every window and auction before it is over."""
    person = {
        "id": 999_999,
        "name": "The Last",
        "email_address": "",
        "credit_card": "",
        "city": "",
        "state": "ZZ",
        "at": at + timedelta(hours=1),
        "extra": "",
    }
    return {"event_type": 0, "at": person["at"], "person": person, "auction": None, "bid": None}
