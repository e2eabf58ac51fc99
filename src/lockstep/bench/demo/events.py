"""The demo's input: document-shared events, all of them a function of a seed, a start and a number.

Because of that the input can be made again after the run, without looking at anything Lockstep has stored.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lockstep.clock import US_PER_S

SCHEMA = "customer int, document string, shared_with string, at timestamp"
"""The same words as in the job; a journal refuses a schema that differs from its own."""
CUSTOMERS = 250
EVENTS_PER_S = 1_000
BLOCK_EVENTS = 50
"""Events that are made and sent together: 20 durable appends a second are cheap, and no event waits over 50 ms."""
DISORDER_US = 300_000
"""Events come up to this late, less than the job's ``out_of_order``: every one of them has to be counted."""
PUBLIC = "public"
_SHARED_WITH = ("team", "company", "partner", PUBLIC)
_PERCENT = (60, 23, 10, 7)


@dataclass(frozen=True)
class Event:
    """One document was shared."""

    customer: int
    document: str
    shared_with: str
    at_us: int

    def record(self) -> dict[str, object]:
        """As the journal takes it."""
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.at_us)
        return {"customer": self.customer, "document": self.document, "shared_with": self.shared_with, "at": at}


def due_us(start_us: int, number: int) -> int:
    """When event ``number`` is to be sent.

    >>> due_us(1_000_000, 500)
    1500000
    """
    return start_us + number * US_PER_S // EVENTS_PER_S


def block(seed: int, start_us: int, number: int) -> list[Event]:
    """The events of one block; the same for the same arguments, in every process.

    >>> block(7, 0, 3) == block(7, 0, 3), block(7, 0, 3) == block(8, 0, 3), len(block(7, 0, 3))
    (True, False, 50)
    """
    chance = random.Random(f"{seed}/{number}")  # noqa: S311  (repeatable on purpose)
    first = number * BLOCK_EVENTS
    return [_event(chance, due_us(start_us, one)) for one in range(first, first + BLOCK_EVENTS)]


def _event(chance: random.Random, due: int) -> Event:
    return Event(
        customer=chance.randrange(CUSTOMERS),
        document=f"document-{chance.randrange(10_000)}",
        shared_with=chance.choices(_SHARED_WITH, _PERCENT)[0],
        at_us=due - chance.randrange(DISORDER_US),
    )


def events(seed: int, start_us: int, blocks: int) -> Iterator[Event]:
    """Everything that was sent in the first ``blocks`` blocks."""
    for number in range(blocks):
        yield from block(seed, start_us, number)


def closing_event(start_us: int, blocks: int) -> Event:
    """An event well after all others, which matches no rule: it moves event time on, so that every window closes."""
    return Event(0, "closing", "team", due_us(start_us, blocks * BLOCK_EVENTS) + 10 * US_PER_S)
