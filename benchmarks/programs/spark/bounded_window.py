"""Windows over much input at once, with Structured Streaming."""

from common import read, run, session
from pyspark.sql import functions as F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

spark = session("bounded_window")
events = read(spark, "events", EVENT).withColumn("at", F.timestamp_millis("at_ms"))
windows = (
    events.withWatermark("at", "2 seconds")
    .groupBy("key", F.window("at", "10 seconds"))
    .agg(F.count("*").alias("events"), F.sum("amount").alias("total"))
)
run(windows.select("key", F.unix_millis("window.start").alias("window_start_ms"), "events", "total"), "append")
