"""Nexmark with Structured Streaming: queries 0, 1, 2, 5 and 7."""

import os

from common import read, run, session
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BID = "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp, extra string"
EVENT = f"event_type int, at_ms bigint, at timestamp, bid struct<{BID}>"


def q0(bids: DataFrame) -> DataFrame:
    """Pass through."""
    return bids.select("auction", "bidder", "price", "at_ms", "extra")


def q1(bids: DataFrame) -> DataFrame:
    """Currency conversion."""
    euros = F.expr("cast(cast(price * 0.908 as decimal(23, 3)) as string)")
    return q0(bids).withColumn("price", euros)


def q2(bids: DataFrame) -> DataFrame:
    """Selection."""
    return bids.filter("auction % 123 = 0").select("auction", "price")


def q5(bids: DataFrame) -> DataFrame:
    """Hot items."""
    counts = bids.groupBy(F.window("at", "10 seconds", "2 seconds"), "auction").agg(F.count("*").alias("bids"))
    together = counts.groupBy("window").agg(
        F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("all")
    )
    best = together.select("window.end", "most", F.explode("all").alias("one")).filter("one.bids = most")
    return best.select(F.unix_millis("end").alias("window_end_ms"), "one.auction", "one.bids")


def q7(bids: DataFrame) -> DataFrame:
    """Highest bid."""
    every = bids.withColumn("window", F.window("at", "10 seconds"))
    highest = bids.groupBy(F.window("at", "10 seconds")).agg(F.max("price").alias("price"))
    return q0(every.join(highest, ["window", "price"]))


query = os.environ["BENCH_WORKLOAD"].removeprefix("nexmark_")
events = read(session("nexmark"), "nexmark", EVENT).withWatermark("at", "4 seconds")
bids = events.filter("event_type = 2").select("bid.auction", "bid.bidder", "bid.price", "at", "at_ms", "bid.extra")
run({"q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7}[query](bids), "append")
