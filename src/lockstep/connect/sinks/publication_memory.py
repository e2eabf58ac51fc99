"""What a sink without a fence of its own remembers: its newest publications, as one fact of the job's store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from lockstep.clock import Clock
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.protocols import Place, Publication
from lockstep.store.protocols import Store


class PublicationMemory:
    """Put-if-absent by epoch. Epochs come without gaps, so the newest one tells that all before it are taken.

    What is forgotten is only what they held: nobody who is further behind than ``place.publications_kept`` can compare.
    """

    def __init__(self, key: str, place: Place) -> None:
        self._key = key
        self._kept = place.publications_kept
        self._store = LazyStore(place)

    @property
    def store(self) -> Store:
        """The store it is in."""
        return self._store.get()

    def last(self) -> int | None:
        """The newest epoch, None if there is none."""
        _, taken = self._taken()
        return taken[-1].epoch if taken else None

    def find(self, epoch: int) -> Publication | None:
        """What holds for an epoch, None if it is free. Of one long ago only that it is taken: its digest is empty."""
        return _found(self._taken()[1], epoch)

    def put(self, wanted: Publication, clock: Clock) -> tuple[Publication, bool]:
        """What holds afterwards, and whether it is ``wanted``, put now.

        A compare-and-swap, not a lease: a replica that stood still for longer than a lease lasts would be a second one.
        """
        while True:
            before, taken = self._taken()
            if (held := _found(taken, wanted.epoch)) is not None:
                return held, False
            note = replace(wanted, published_us=clock())
            after = json.dumps([asdict(each) for each in (*taken, note)][-self._kept :])
            if self.store.swap_fact(self._key, before, after):
                return note, True

    def close(self) -> None:
        """Close the store, if it was opened."""
        self._store.close()

    def _taken(self) -> tuple[str | None, list[Publication]]:
        fact = self.store.fact(self._key)
        return fact, [Publication(**each) for each in json.loads(fact)] if fact else []


def comparable(held: Publication, wanted: Publication) -> Publication:
    """``held``; of an epoch taken long ago there is nothing to compare with, so it agrees with ``wanted``."""
    return held if held.digest else replace(held, digest=wanted.digest, rows=wanted.rows, version=wanted.version)


def _found(taken: Sequence[Publication], epoch: int) -> Publication | None:
    if not taken or epoch > taken[-1].epoch:
        return None
    known = next((each for each in taken if each.epoch == epoch), None)
    return known or Publication(epoch, "", 0, "", "")
