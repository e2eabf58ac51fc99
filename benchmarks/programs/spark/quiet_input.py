"""Two inputs of which one goes quiet, with Structured Streaming: each has a watermark of its own, the lower one counts.

Spark knows no idle inputs: results wait for the quiet one. The policy that takes the higher watermark instead would
drop what an input that is behind has yet to bring.
"""

from common import read, run, session
from pyspark.sql import functions as F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

spark = session("quiet_input")
steady, moody = (
    read(spark, source, EVENT).withColumn("at", F.timestamp_millis("at_ms")).withWatermark("at", "500 milliseconds")
    for source in ("steady", "moody")
)
windows = (
    steady.union(moody)
    .groupBy("key", F.window("at", "1 second"))
    .agg(F.count("*").alias("events"), F.sum("amount").alias("total"))
)
run(windows.select("key", F.unix_millis("window.start").alias("window_start_ms"), "events", "total"), "append")
