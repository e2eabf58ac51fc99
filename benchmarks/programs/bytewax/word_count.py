"""Word count with Bytewax: how often each word came so far."""

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from common import read, run, write


def words(line: dict) -> list[tuple[str, int]]:
    """Each word with the number of its line."""
    return [(word, line["seq"]) for word in line["text"].split()]


def count(before: int | None, seq: int) -> tuple[int, tuple[int, int]]:
    """One more."""
    now = (before or 0) + 1
    return now, (now, seq)


flow = Dataflow("word_count")
counts = op.stateful_map("count", op.flat_map("words", read(flow, "lines"), words), count)
write(op.map("rows", counts, lambda kv: {"word": kv[0], "count": kv[1][0], "seq": kv[1][1]}))

if __name__ == "__main__":
    run(flow)
