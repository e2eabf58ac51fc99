"""Word count with Lockstep: how often each word came so far."""

from common import source

import lockstep as ls
from lockstep import F

job = ls.Job("word-count")
lines = job.source("lines", source("lines", "seq bigint, sent_us bigint, text string"))
words = lines.select("seq", words=F.split("text", " ")).explode("words", as_="word")
counts = words.key_by("word").agg(count=F.count("*"), seq=F.max("seq"))
counts.to(ls.files("output", format="jsonl"))
