"""Words from a socket, counted as they come: the classic, with a journal between the socket and the count.

A socket cannot be read twice, and every replica has to read the same. So `lockstep ingest socket` carries the lines
into a journal, where they are safe, and the job reads the journal. In an empty folder, each in a terminal of its own:

    python serve_lines.py                                      # a server with something to say, on port 9999
    lockstep ingest socket --port 9999 --journal lines         # reads it; makes the journal
    lockstep run word_count.py --replicas 2
    lockstep tail out/words --follow                           # words whose count has changed

The counts are kept up to date in a table too: sqlite3 out/words.db "select * from words order by n desc limit 10".
"""

import lockstep as ls

job = ls.Job("word-count")

words = (
    job.source("lines", ls.journal("lines", schema="line string"))
    .explode(word=r"split(lower(line), '[^\\p{L}\']+')")
    .filter("word != ''")
)

counts = words.key_by("word").count(as_="n")  # a record for each word whose count has changed in the epoch
counts.to(ls.files("out/words", format="jsonl"))
counts.to(ls.sqlite("out/words.db", table="words", key="word"))
