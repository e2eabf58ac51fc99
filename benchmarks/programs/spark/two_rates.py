"""Two inputs in one, with Structured Streaming: each has a watermark of its own, and the lower one counts.

A watermark after the union would follow the input that is ahead and drop what the other has yet to bring.
"""

from common import read, run, session
from pyspark.sql import functions as F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

spark = session("two_rates")
fast, slow = (
    read(spark, source, EVENT).withColumn("at", F.timestamp_millis("at_ms")).withWatermark("at", "500 milliseconds")
    for source in ("fast", "slow")
)
windows = (
    fast.union(slow)
    .groupBy("key", F.window("at", "1 second"))
    .agg(F.count("*").alias("events"), F.sum("amount").alias("total"))
)
run(windows.select("key", F.unix_millis("window.start").alias("window_start_ms"), "events", "total"), "append")
