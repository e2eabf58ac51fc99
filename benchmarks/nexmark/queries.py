"""The Nexmark queries as jobs of Lockstep: each a function from the site's streams to the stream of its results.

They are the queries of the suite as it is published for streaming SQL, with these decisions where a stream has no end:

- A join of two streams needs a time bound (q3, q20): partners further apart than :data:`HORIZON` are not looked for.
- Results of windows are final (q5, q7, q8, q11, q12): they come once, when event time has passed the window's end.
- An auction's winning bid (q4, q6) is the highest made while the auction was open, known when event time has passed its
  end. An auction without a bid has none.
- q4 gives a category's average again whenever one of its auctions has ended, q17 an auction's figures whenever it had
  bids: updates, one for each epoch, in which the newest row of a key holds.
- q5 and q7 give all that share the first place.
- q6 averages a seller's last ten auctions that ended with a winner, in order of their ends and, if they ended together,
  of their numbers; it gives the new average with each. (In the published SQL it is eleven rows; the description says
  ten, and so do others.)
- q12's windows are of processing time, which here is epoch time.
- q18's last bid and q19's ten highest are updates too: q18 gives the newest by (bidder, auction), q19 each place of an
  auction that another bid has taken. Among equal prices the earlier bid is in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import lockstep as ls
from benchmarks.nexmark.generator import AUCTION, BID, BID_FIELDS, PERSON, SCHEMA
from lockstep import F
from lockstep.api.job import Job
from lockstep.api.stream import Stream
from lockstep.plan.specs import SourceSpec

OUT_OF_ORDER = "4 seconds"
HORIZON = "1 hour"
_MICROSECOND = timedelta(microseconds=1)
_WON = ("seller", "category", "expires")
_BID = ("auction", "bidder", "price", "channel", "url", "at", "extra")
_AUCTION = ("id", "item_name", "description", "initial_bid", "reserve", "at", "expires", "seller", "category", "extra")
_PERSON = ("id", "name", "email_address", "credit_card", "city", "state", "at", "extra")


@dataclass(frozen=True)
class Site:
    """The streams of the auction site."""

    events: Stream
    people: Stream
    auctions: Stream
    bids: Stream

    @cached_property
    def winners(self) -> Stream:
        """The winning bid of each auction, when it has ended: columns auction, seller, category, price, expires."""
        trades = self.events.filter(F.col("event_type") != PERSON).select(
            "at",
            auction="coalesce(auction.id, bid.auction)",
            price="bid.price",
            seller="auction.seller",
            category="auction.category",
            expires="auction.expires",
        )
        schema = "auction bigint, seller bigint, category bigint, price bigint, expires timestamp"
        return trades.key_by("auction").process(WinningBid(), schema=schema)


def site(job: Job, source: SourceSpec | None = None) -> Site:
    """The site's streams, read from a source of :data:`benchmarks.nexmark.generator.SCHEMA`.

    >>> site(ls.Job("doc")).bids.columns
    ('auction', 'bidder', 'price', 'channel', 'url', 'at', 'extra')
    """
    source = source or ls.journal("nexmark", schema=SCHEMA)
    events = job.source("nexmark", source).event_time("at", out_of_order=OUT_OF_ORDER)

    return Site(
        events,
        _of(events, PERSON, "person", _PERSON),
        _of(events, AUCTION, "auction", _AUCTION),
        _of(events, BID, "bid", _BID),
    )


def _of(events: Stream, kind: int, struct: str, fields: tuple[str, ...]) -> Stream:
    values = [F.col(f"{struct}.{field}").alias(field) for field in fields]
    return events.filter(F.col("event_type") == kind).select(*values)


def q0(site: Site) -> Stream:
    """Pass through: the bids as they are, what reading and writing alone cost."""
    return site.bids.select("auction", "bidder", "price", "at", "extra")


def q1(site: Site) -> Stream:
    """Currency conversion: bids in euros, exact to a tenth of a cent."""
    return site.bids.select("auction", "bidder", "at", "extra", price="cast(price * 0.908 as decimal(23, 3))")


def q2(site: Site) -> Stream:
    """Selection: the bids on every 123rd auction."""
    return site.bids.filter("auction % 123 = 0").select("auction", "price")


def q3(site: Site) -> Stream:
    """Local items: who in Oregon, Idaho or California sells in category 10, and what; a join that is never complete."""
    auctions = site.auctions.filter("category = 10").select("seller", "id")
    sellers = site.people.filter("state in ('OR', 'ID', 'CA')").select(F.col("name"), "city", "state", seller="id")
    joined = auctions.join(sellers, on="seller", between=(f"-{HORIZON}", HORIZON))
    return joined.select(F.col("name"), "city", "state", "id")


def q4(site: Site) -> Stream:
    """Average price of a category: over the winning bids of its auctions so far; a join, then two aggregations."""
    return site.winners.key_by("category").agg(average=F.avg("price"))


def q5(site: Site) -> Stream:
    """Hot items: the auctions with the most bids in the last ten seconds, every two seconds."""
    counts = site.bids.key_by("auction").window(ls.sliding("10 seconds", every="2 seconds")).agg(bids=F.count("*"))
    # A result's time is just before its window's end, so the results of one window, and no others, share two seconds.
    found = counts.select("auction", "bids", ending="window_end").window(ls.tumbling("2 seconds"))
    return found.process(most_bids, schema="ending timestamp, auction bigint, bids bigint").select(
        "auction", "bids", window_end="ending"
    )


def most_bids(records: Any, _window: Any) -> Iterator[dict[str, Any]]:
    """The auctions that share the first place."""
    counted = list(records)
    most = max(record.bids for record in counted)
    for record in counted:
        if record.bids == most:
            yield {"ending": record.ending, "auction": record.auction, "bids": record.bids}


def q6(site: Site) -> Stream:
    """Average selling price: of each seller's last ten auctions that ended with a winner."""
    return site.winners.key_by("seller").process(LastTen(), schema="seller bigint, auction bigint, average double")


def q7(site: Site) -> Stream:
    """Highest bid: in every ten seconds, the bids that nobody outbid; an aggregation joined with what it aggregates."""
    window = ls.tumbling("10 seconds")
    highest = site.bids.window(window).agg(price=F.max("price")).select("price")
    # A result's time is just before its window's end, so it is in the same window as the bids.
    joined = site.bids.join(highest, on="price", window=window)
    return joined.select("auction", "bidder", "price", "at", "extra")


def q8(site: Site) -> Stream:
    """New users: who registered and opened an auction within the same ten seconds."""
    window = ls.tumbling("10 seconds")
    sellers = site.auctions.key_by(id="seller").window(window).agg(auctions=F.count("*")).select("id", "auctions")
    people = site.people.select("id", F.col("name"))
    return people.join(sellers, on="id", window=window).select("id", F.col("name"), "window_start")


def q11(site: Site) -> Stream:
    """User sessions: how many bids a user makes before being quiet for ten seconds."""
    return site.bids.key_by("bidder").window(ls.session("10 seconds")).agg(bids=F.count("*"))


def q12(site: Site) -> Stream:
    """Processing time: how many bids of a user come within ten seconds of epoch time."""
    window = ls.tumbling("10 seconds", time="processing")
    return site.bids.key_by("bidder").window(window).agg(bids=F.count("*")).select("bidder", "window_start", "bids")


def q17(site: Site) -> Stream:
    """Auction statistics: bids by auction and day, in three classes of price."""
    return site.bids.key_by("auction", day="date_format(at, 'yyyy-MM-dd')").agg(
        bids=F.count("*"),
        low=F.expr("count_if(price < 10000)"),
        middle=F.expr("count_if(price >= 10000 and price < 1000000)"),
        high=F.expr("count_if(price >= 1000000)"),
        lowest=F.min("price"),
        highest=F.max("price"),
        average=F.avg("price"),
        total=F.sum("price"),
    )


def q18(site: Site) -> Stream:
    """Last bid: the newest bid of each bidder on each auction."""
    return site.bids.key_by("bidder", "auction").reduce(later).select(*_BID)


def later(before: Any, bid: Any) -> Any:
    """The later of two bids; of two at the same time the one that came later."""
    return bid if bid.at >= before.at else before


def q19(site: Site) -> Stream:
    """Top ten: the ten highest bids of each auction, each with its place."""
    return site.bids.key_by("auction").process(TopTen(), schema=f"{BID_FIELDS}, place int")


def q20(site: Site) -> Stream:
    """Expanded bids: those on auctions of category 10, with all that is known of the auction."""
    auctions = site.auctions.filter("category = 10").rename(id="auction", at="auction_at", extra="auction_extra")
    bids = site.bids.rename(at="bid_at", extra="bid_extra")
    return bids.join(auctions, on="auction", between=(f"-{HORIZON}", HORIZON))


class WinningBid(ls.Process):
    """Waits until an auction has ended, and says who won; without a bid, nothing."""

    opened = ls.value_state("struct<at: timestamp, expires: timestamp, seller: bigint, category: bigint>")
    highest = ls.value_state("bigint")
    early = ls.list_state("struct<at: timestamp, price: bigint>", ttl=HORIZON)
    """Bids that came before their auction; those whose auction never comes are forgotten."""

    def on_record(self, record: Any, ctx: Any) -> None:
        """A bid, or the auction itself."""
        if record.expires is not None:
            self.opened.set(
                {"at": record.at, "expires": record.expires, "seller": record.seller, "category": record.category}
            )
            # A microsecond later: a bid at the very end still counts.
            ctx.set_timer(record.expires + _MICROSECOND)
            for bid in self.early:
                self._offer(bid["at"], bid["price"])
            self.early.clear()
        elif self.opened.get() is None:
            self.early.append({"at": record.at, "price": record.price})
        else:
            self._offer(record.at, record.price)

    def _offer(self, at: datetime, price: int) -> None:
        opened: Any = self.opened.get()
        if opened["at"] <= at <= opened["expires"]:
            self.highest.set(max(price, self.highest.get() or 0))

    def on_timer(self, _timer: Any, ctx: Any) -> None:
        """The auction is over."""
        opened: Any = self.opened.get()
        price = self.highest.get()
        if price is not None:
            ctx.emit(auction=ctx.key.auction, price=price, **{name: opened[name] for name in _WON})
        self.opened.clear()
        self.highest.clear()


class LastTen(ls.Process):
    """The average of the last ten prices of a seller, in order of the ends of auctions, then of their numbers."""

    prices = ls.list_state("bigint")
    ended = ls.list_state("struct<expires: timestamp, auction: bigint, price: bigint>")
    """Auctions that may not be the next: another one that has ended before may still come."""

    def on_record(self, record: Any, ctx: Any) -> None:
        """One more auction has ended."""
        self.ended.append({"expires": record.expires, "auction": record.auction, "price": record.price})
        ctx.set_timer(record.expires + 2 * _MICROSECOND)

    def on_timer(self, timer: Any, ctx: Any) -> None:
        """Event time has passed these ends."""
        over = [one for one in self.ended if one["expires"] < timer.at]
        self.ended.set([one for one in self.ended if one["expires"] >= timer.at])
        for one in sorted(over, key=lambda one: (one["expires"], one["auction"])):
            prices = [*self.prices, one["price"]][-10:]
            self.prices.set(prices)
            ctx.emit(seller=ctx.key.seller, auction=one["auction"], average=sum(prices) / len(prices))


class TopTen(ls.Process):
    """The ten highest bids of an auction, with each change of a place."""

    bids = ls.list_state(f"struct<{BID_FIELDS}>")

    def on_record(self, record: Any, ctx: Any) -> None:
        """A bid pushes those below it down."""
        before = list(self.bids)
        after = sorted([*before, record.asdict()], key=lambda bid: (-bid["price"], bid["at"]))[:10]
        if after == before:
            return
        self.bids.set(after)
        for place, bid in enumerate(after, 1):
            if place > len(before) or bid != before[place - 1]:
                ctx.emit(**bid, place=place)


QUERIES: dict[str, Callable[[Site], Stream]] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q11, q12, q17, q18, q19, q20)
}
"""By name, as the suite counts them."""
