"""Word count with Structured Streaming: how often each word came so far."""

from common import read, run, session
from pyspark.sql import functions as F

spark = session("word_count")
lines = read(spark, "lines", "seq bigint, sent_us bigint, text string")
words = lines.select("seq", F.explode(F.split("text", " ")).alias("word"))
counts = words.groupBy("word").agg(F.count("*").alias("count"), F.max("seq").alias("seq"))
run(counts, "update")
