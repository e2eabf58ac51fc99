"""The SaaS monitor with Structured Streaming: customers that made documents public, second by second."""

from common import read, run, session
from pyspark.sql import functions as F

SHARED = "seq bigint, sent_us bigint, at_ms bigint, customer bigint, document string, shared_with string"

spark = session("saas_monitor")
shared = read(spark, "shared", SHARED).withColumn("at", F.timestamp_millis("at_ms"))
alerts = (
    shared.withWatermark("at", "500 milliseconds")
    .filter(F.col("shared_with") == "public")
    .groupBy("customer", F.window("at", "1 second"))
    .agg(F.count("*").alias("documents"), F.max("at_ms").alias("newest_ms"))
)
run(
    alerts.select("customer", F.unix_millis("window.start").alias("window_start_ms"), "documents", "newest_ms"),
    "append",
)
