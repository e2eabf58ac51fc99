"""Nexmark's queries 4 and 6 with Structured Streaming: two functions with state, one after the other.

The first waits, with timers of event time, until an auction has ended, and says what it was sold for. The second has
the categories or the sellers. Aggregations of aggregations that are not of windows are not possible otherwise.
"""

# ruff: noqa: N802, N803, ARG002 (Spark named the methods and what it passes)

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WON = "auction bigint, seller bigint, category bigint, price bigint, ended_ms bigint, ended timestamp"


def prepare(spark: SparkSession) -> None:
    """What functions with state need: RocksDB, which then writes what has changed, and this file's code as values."""
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    # Spark asks the functions for their state in a process that does not know the files of `addPyFile`.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


class WinningBid(StatefulProcessor):
    """The highest of the bids that were made while an auction was open, when it has ended."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.handle = handle
        self.opened = handle.getValueState(
            "opened", "at_ms bigint, expires_ms bigint, seller bigint, category bigint, highest bigint"
        )
        self.early = handle.getListState("early", "at_ms bigint, price bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Bids, and at some time the auction itself."""
        opened, bids = self.opened.get(), []
        for row in rows:
            if row.expires_ms is None:
                bids.append((row.at_ms, row.price))
            else:
                opened = (row.at_ms, row.expires_ms, row.seller, row.category, 0)
                if self.early.exists():
                    bids.extend(self.early.get())
                    self.early.clear()
                # A millisecond later: a bid at the very end still counts.
                self.handle.registerTimer(row.expires_ms + 1)
        if opened is None:
            self.keep(bids)
        else:
            in_time = [price for at_ms, price in bids if opened[0] <= at_ms <= opened[1]]
            self.opened.update((*opened[:4], max([opened[4], *in_time])))
        return iter(())

    def keep(self, bids: list[tuple[int, int]]) -> None:
        """Bids without an auction: when event time has passed them, none can come that was open then."""
        self.early.appendList(bids)
        self.handle.registerTimer(max(at_ms for at_ms, _ in bids) + 1)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The auction has ended, or early bids have been too early."""
        now_ms, opened = expiredTimerInfo.getExpiryTimeInMs(), self.opened.get()
        if opened is None:
            later = [bid for bid in self.early.get() if bid[0] >= now_ms]
            self.early.clear()
            if later:
                self.early.appendList(later)
        elif opened[1] < now_ms:
            self.opened.clear()
            if opened[4]:
                won = {"seller": opened[2], "category": opened[3], "price": opened[4]}
                yield Row(auction=key[0], **won, ended_ms=now_ms, ended=EPOCH + timedelta(milliseconds=now_ms))


class AverageByCategory(StatefulProcessor):
    """The average of all winning bids of a category, with each batch that brings some."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.sums = handle.getValueState("sums", "number bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """More auctions have ended."""
        number, total = self.sums.get() or (0, 0)
        for row in rows:
            number, total = number + 1, total + row.price
        self.sums.update((number, total))
        yield Row(category=key[0], average=total / number)


class LastTen(StatefulProcessor):
    """The average of a seller's last ten winning bids, with each."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.prices = handle.getListState("prices", "price bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """More auctions have ended: those of a batch come in any order, and after those of earlier batches."""
        prices = [price for (price,) in self.prices.get()]
        for row in sorted(rows, key=lambda row: (row.ended_ms, row.auction)):
            prices = [*prices, row.price][-10:]
            yield Row(seller=key[0], auction=row.auction, average=sum(prices) / len(prices))
        self.prices.put([(price,) for price in prices])


def winners(events: DataFrame) -> DataFrame:
    """The auctions that ended with a bid."""
    prepare(events.sparkSession)
    # Spark moves a filter below the watermark, where those who register would no longer count for it, unless the
    # filter reads the event time.
    trades = events.filter("if(at is null, false, event_type > 0)").selectExpr(
        "coalesce(auction.id, bid.auction) as auction",
        "at",
        "at_ms",
        "unix_millis(auction.expires) as expires_ms",
        "auction.seller",
        "auction.category",
        "bid.price",
    )
    return trades.groupBy("auction").transformWithState(
        WinningBid(), WON, "append", "EventTime", eventTimeColumnName="ended"
    )


def q4(events: DataFrame) -> DataFrame:
    """Average price of a category."""
    by_category = winners(events).groupBy("category")
    return by_category.transformWithState(AverageByCategory(), "category bigint, average double", "append", "None")


def q6(events: DataFrame) -> DataFrame:
    """Average selling price by seller."""
    columns = "seller bigint, auction bigint, average double"
    return winners(events).groupBy("seller").transformWithState(LastTen(), columns, "append", "None")


QUERIES = {"q4": q4, "q6": q6}
