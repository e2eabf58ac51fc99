"""Nexmark with Structured Streaming: queries 0 to 8; 4 and 6, which wait for the ends of auctions, are a file apart."""

import os

import nexmark_state
from common import read, run, session
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PERSON = "id bigint, name string, city string, state string"
AUCTION = "id bigint, expires timestamp, seller bigint, category bigint"
BID = "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp, extra string"
EVENT = (
    f"event_type int, at_ms bigint, at timestamp, person struct<{PERSON}>, auction struct<{AUCTION}>, bid struct<{BID}>"
)


def people(events: DataFrame) -> DataFrame:
    """Who registered."""
    return events.filter("event_type = 0").select("person.*", "at")


def auctions(events: DataFrame) -> DataFrame:
    """What was put up for sale."""
    return events.filter("event_type = 1").select("auction.*", "at")


def bids(events: DataFrame) -> DataFrame:
    """Who would pay what."""
    columns = ("bid.auction", "bid.bidder", "bid.price", "at", "at_ms", "bid.extra")
    return events.filter("event_type = 2").select(*columns)


def bids_in_time(events: DataFrame) -> DataFrame:
    """The same for what waits for the watermark.

    Spark moves a filter below the watermark, where other events would no longer count for it, unless it reads the time.
    """
    return bids(events.withColumn("event_type", F.expr("if(at is null, null, event_type)")))


def q0(events: DataFrame) -> DataFrame:
    """Pass through."""
    return passed(bids(events))


def passed(found: DataFrame) -> DataFrame:
    """Bids as results."""
    return found.select("auction", "bidder", "price", "at_ms", "extra")


def q1(events: DataFrame) -> DataFrame:
    """Currency conversion."""
    euros = F.expr("cast(cast(price * 0.908 as decimal(23, 3)) as string)")
    return q0(events).withColumn("price", euros)


def q2(events: DataFrame) -> DataFrame:
    """Selection."""
    return bids(events).filter("auction % 123 = 0").select("auction", "price")


def q3(events: DataFrame) -> DataFrame:
    """Local items."""
    sold = auctions(events).filter("category = 10").select("id", "seller", F.col("at").alias("opened"))
    sellers = people(events).filter("state in ('OR', 'ID', 'CA')").withColumnRenamed("id", "seller")
    near = F.expr("opened between at - interval 1 hour and at + interval 1 hour")
    return sold.join(sellers, (sold["seller"] == sellers["seller"]) & near).select("name", "city", "state", sold["id"])


def q5(events: DataFrame) -> DataFrame:
    """Hot items."""
    windows = F.window("at", "10 seconds", "2 seconds")
    counts = bids_in_time(events).groupBy(windows, "auction").agg(F.count("*").alias("bids"))
    together = counts.groupBy("window").agg(
        F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("all")
    )
    best = together.select("window.end", "most", F.explode("all").alias("one")).filter("one.bids = most")
    return best.select(F.unix_millis("end").alias("window_end_ms"), "one.auction", "one.bids")


def q7(events: DataFrame) -> DataFrame:
    """Highest bid."""
    every = bids_in_time(events).withColumn("window", F.window("at", "10 seconds"))
    highest = bids_in_time(events).groupBy(F.window("at", "10 seconds")).agg(F.max("price").alias("price"))
    return passed(every.join(highest, ["window", "price"]))


def q8(events: DataFrame) -> DataFrame:
    """New users: a semi join, so that whoever opened several auctions comes once."""
    window = F.window("at", "10 seconds").alias("window")
    sellers = auctions(events).select(F.col("seller").alias("id"), window)
    new = people(events).select("id", "name", window).join(sellers, ["id", "window"], "left_semi")
    return new.select("id", "name", F.unix_millis("window.start").alias("window_start_ms"))


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q3": q3, "q5": q5, "q7": q7, "q8": q8, **nexmark_state.QUERIES}

if __name__ == "__main__":
    spark = session("nexmark")
    events = read(spark, "nexmark", EVENT).withWatermark("at", "4 seconds")
    run(QUERIES[os.environ["BENCH_WORKLOAD"].removeprefix("nexmark_")](events), "append")
