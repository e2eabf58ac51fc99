"""Word count, keyed tumbling windows, a Python function with state by key, and the SaaS monitor."""

from __future__ import annotations

from collections import defaultdict
from heapq import nlargest
from typing import Any

from benchmarks.engines.contract import CLOSING_MS, Input, Records, Results, Row
from benchmarks.engines.workloads.definition import Definition, Key, mixed

KEYS = 250
DISORDER_MS = 300
"""Records come up to this late, less than is allowed for: every one of them has to be counted."""
OUT_OF_ORDER_MS = 500
WINDOW_MS = 1000
WORDS = 2000
WORDS_PER_LINE = 5
EVENT = (("seq", "bigint"), ("sent_us", "bigint"), ("at_ms", "bigint"), ("key", "string"), ("amount", "bigint"))


def key_name(number: int) -> str:
    """A key.

    >>> key_name(7)
    'k007'
    """
    return f"k{number:03d}"


def late_ms(seq: int, sent_us: int) -> int:
    """When record ``seq`` happened: up to :data:`DISORDER_MS` before it was sent."""
    return sent_us // 1000 - mixed(seq) // 7 % DISORDER_MS


def event(_source: str, seq: int, sent_us: int) -> Row:
    """An amount of a key, somewhat late."""
    mix = mixed(seq)
    return {"at_ms": late_ms(seq, sent_us), "key": key_name(mix % KEYS), "amount": (mix >> 14) % 1000}


def line(_source: str, seq: int, _sent_us: int) -> Row:
    """A few words, small numbers much more often than large ones.

    >>> line("lines", 3, 0)
    {'text': 'w39 w1403 w259 w3 w819'}
    """
    numbers = (mixed(seq * WORDS_PER_LINE + place) / (1 << 32) for place in range(WORDS_PER_LINE))
    return {"text": " ".join(f"w{int(WORDS * number**3)}" for number in numbers)}


def word_counts(records: Records) -> list[Row]:
    """How often each word came."""
    counts: dict[str, int] = defaultdict(int)
    for row in records["lines"]:
        for word in row["text"].split():
            counts[word] += 1
    return [{"word": word, "count": count} for word, count in counts.items()]


def _words(_source: str, row: Row) -> list[Key]:
    return [(word,) for word in row["text"].split()]


def window_sums(records: Records) -> list[Row]:
    """Number and sum of the amounts of each key in each second, over all sources."""
    return sums(records, WINDOW_MS)


def sums(records: Records, window_ms: int) -> list[Row]:
    """Number and sum of the amounts of each key in each window, over all sources.

    >>> sums({"a": [{"key": "k", "at_ms": 12, "amount": 3}], "b": [{"key": "k", "at_ms": 19, "amount": 4}]}, 10)
    [{'key': 'k', 'window_start_ms': 10, 'events': 2, 'total': 7}]
    """
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for rows in records.values():
        for row in rows:
            if row["at_ms"] < CLOSING_MS:
                tally = found[row["key"], row["at_ms"] - row["at_ms"] % window_ms]
                tally[0] += 1
                tally[1] += row["amount"]
    return [
        {"key": key, "window_start_ms": start, "events": events, "total": total}
        for (key, start), (events, total) in found.items()
    ]


def highest_three(records: Records) -> list[Row]:
    """Of each key: how many amounts there were, and the three highest of them added up."""
    amounts: dict[str, list[int]] = defaultdict(list)
    for row in records["events"]:
        amounts[row["key"]].append(row["amount"])
    return [{"key": key, "events": len(all_), "best": sum(nlargest(3, all_))} for key, all_ in amounts.items()]


def _key(_source: str, row: Row) -> list[Key]:
    return [(row["key"],)]


def shared(_source: str, seq: int, sent_us: int) -> Row:
    """A document was shared; one in fourteen with the whole world."""
    mix = mixed(seq)
    return {
        "at_ms": late_ms(seq, sent_us),
        "customer": mix % KEYS,
        "document": f"document-{mix % 10_007}",
        "shared_with": "public" if (mix >> 14) % 14 == 0 else "team",
    }


def alerts(records: Records) -> list[Row]:
    """Customers that made documents public, second by second."""
    found: dict[tuple[int, int], list[Any]] = defaultdict(lambda: [0, 0])
    for row in records["shared"]:
        if row["shared_with"] == "public" and row["at_ms"] < CLOSING_MS:
            tally = found[row["customer"], row["at_ms"] - row["at_ms"] % WINDOW_MS]
            tally[0] += 1
            tally[1] = max(tally[1], row["at_ms"])
    return [
        {"customer": customer, "window_start_ms": start, "documents": documents, "newest_ms": newest}
        for (customer, start), (documents, newest) in found.items()
    ]


CLOSING_EVENTS = tuple({"key": key_name(number), "amount": 0} for number in range(KEYS))

WORD_COUNT = Definition(
    name="word_count",
    title="word count",
    inputs=(Input("lines", 1000, (("seq", "bigint"), ("sent_us", "bigint"), ("text", "string"))),),
    steps="split lines into words; count each word so far",
    results=Results.UPDATES,
    columns=("word", "count"),
    key=("word",),
    make=line,
    reference=word_counts,
    keys_of=_words,
)

TUMBLING_WINDOW = Definition(
    name="tumbling_window",
    title="keyed tumbling window",
    inputs=(Input("events", 2000, EVENT),),
    steps="number and sum of amounts by key and second of event time, up to 500 ms out of order, once when final",
    results=Results.FINAL,
    columns=("key", "window_start_ms", "events", "total"),
    key=("key", "window_start_ms"),
    make=event,
    reference=window_sums,
    closing_keys={"events": CLOSING_EVENTS},
    window_ms=WINDOW_MS,
    out_of_order_ms=OUT_OF_ORDER_MS,
)

KEYED_FUNCTION = Definition(
    name="keyed_function",
    title="keyed Python function",
    inputs=(Input("events", 2000, EVENT),),
    steps="a Python function with state by key: how many amounts so far, and the sum of the three highest",
    results=Results.UPDATES,
    columns=("key", "events", "best"),
    key=("key",),
    make=event,
    reference=highest_three,
    keys_of=_key,
)

SAAS_MONITOR = Definition(
    name="saas_monitor",
    title="SaaS monitor",
    inputs=(
        Input(
            "shared",
            1000,
            (
                ("seq", "bigint"),
                ("sent_us", "bigint"),
                ("at_ms", "bigint"),
                ("customer", "bigint"),
                ("document", "string"),
                ("shared_with", "string"),
            ),
        ),
    ),
    steps="of documents shared, those made public, by customer and second of event time, with the newest of them",
    results=Results.FINAL,
    columns=("customer", "window_start_ms", "documents", "newest_ms"),
    key=("customer", "window_start_ms"),
    make=shared,
    reference=alerts,
    closing_keys={
        "shared": tuple({"customer": number, "document": "closing", "shared_with": "public"} for number in range(KEYS))
    },
    window_ms=WINDOW_MS,
    out_of_order_ms=OUT_OF_ORDER_MS,
)
