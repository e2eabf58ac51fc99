"""Word count with Pathway: how often each word came so far."""

import pathway as pw
from common import read, run


class Line(pw.Schema):
    """A few words."""

    seq: int
    sent_us: int
    text: str


@pw.udf(deterministic=True)
def split(text: str) -> list[str]:
    """The words of a line."""
    return text.split()


lines = read("lines", Line)
words = lines.select(pw.this.seq, word=split(pw.this.text)).flatten(pw.this.word)
run(words.groupby(words.word).reduce(words.word, count=pw.reducers.count(), seq=pw.reducers.max(words.seq)))
