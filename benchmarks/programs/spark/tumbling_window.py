"""Keyed tumbling windows with Structured Streaming: append mode, each result once when its window is final."""

from common import read, run, session
from pyspark.sql import functions as F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

spark = session("tumbling_window")
events = read(spark, "events", EVENT).withColumn("at", F.timestamp_millis("at_ms"))
windows = (
    events.withWatermark("at", "500 milliseconds")
    .groupBy("key", F.window("at", "1 second"))
    .agg(F.count("*").alias("events"), F.sum("amount").alias("total"))
)
run(windows.select("key", F.unix_millis("window.start").alias("window_start_ms"), "events", "total"), "append")
