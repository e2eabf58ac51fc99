"""How the records of a keyed step are divided among its buckets and keys: counted where records are packed anyway.

Buckets are counted exactly. Keys are counted in a sample of a fixed size, so that the cost stays the same however many
records there are; a key that has a third of all is found with certainty, its share to about two hundredths. Telemetry:
nothing of a result depends on it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOAD_PREFIX, LOADS = "load of ", "loads"
"""Under which a step's counts stand in Spark's reports: the metric is the prefix and the step, and has one column."""
SAMPLE = 4_096
"""Records whose keys are counted, of up to half a million: below a millisecond."""
KEYS_NOTED = 8
"""The heaviest keys of each task: beyond them nothing is hot."""
KEY_CHARACTERS_MAX = 80


@dataclass(frozen=True)
class HotKey:
    """A key with many of a step's records."""

    key: str
    bucket: int
    share: float
    """Of all records of the step, by a sample of them."""


@dataclass(frozen=True)
class StepLoad:
    """What of a step's records each bucket had, and the heaviest keys."""

    step: str
    buckets: Mapping[int, int] = field(default_factory=dict)
    """Records by bucket; those without any are left out."""
    keys: tuple[HotKey, ...] = ()
    """The heaviest first."""

    @property
    def records(self) -> int:
        """All of them."""
        return sum(self.buckets.values())

    @property
    def largest(self) -> int:
        """The bucket that has most."""
        return max(self.buckets, key=lambda one: (self.buckets[one], -one), default=0)

    @property
    def usual(self) -> float:
        """The median of the buckets that have any: of a job with few keys, most have none."""
        return median(self.buckets.values()) if self.buckets else 0.0

    @property
    def skew(self) -> float:
        """The largest bucket in terms of the median.

        >>> StepLoad("count", {0: 10, 1: 10, 2: 45}).skew, StepLoad("count").skew
        (4.5, 1.0)
        """
        return self.buckets[self.largest] / self.usual if self.buckets else 1.0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        keys = [[one.key, one.bucket, one.share] for one in self.keys]
        return {"step": self.step, "buckets": sorted(self.buckets.items()), "keys": keys}

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> StepLoad:
        """What :meth:`to_json` gave.

        >>> one = StepLoad("count", {3: 7}, (HotKey("acme", 3, 0.5),))
        >>> StepLoad.from_json(json.loads(json.dumps(one.to_json()))) == one
        True
        """
        return StepLoad(kept["step"], dict(kept["buckets"]), tuple(HotKey(*one) for one in kept["keys"]))


def counted(
    origin: Sequence[Any],
    buckets: NDArray[Any],
    hashes: NDArray[Any] | None,
    key_at: Callable[[int], tuple[Any, ...]],
) -> str:
    """One task's count of some records, as text: by bucket, and of the heaviest keys in a sample.

    ``origin`` tells this text from those of other tasks; the same records give the same text, so that what Spark
    computes twice counts once. ``hashes`` are those of the keys, ``key_at`` gives the key of a record by its place.
    """
    counts = np.bincount(buckets)
    found = np.flatnonzero(counts)
    said: dict[str, Any] = {"of": list(origin), "buckets": [found.tolist(), counts[found].tolist()]}
    if hashes is not None:
        # Drawn, not every n-th: records often come in a rhythm. Always the same draw: see above.
        places = (
            np.random.default_rng(0).integers(0, len(hashes), SAMPLE)
            if len(hashes) > SAMPLE
            else np.arange(len(hashes))
        )
        _, firsts, times = np.unique(hashes[places], return_index=True, return_counts=True)
        heaviest = np.argsort(-times, kind="stable")[:KEYS_NOTED]
        scale = len(hashes) / len(places)
        said["keys"] = [
            [key_text(key_at(at)), int(buckets[at]), float(times[one]) * scale]
            for one in heaviest
            for at in [int(places[firsts[one]])]
        ]
    return json.dumps(said, separators=(",", ":"))


def key_text(key: Sequence[Any]) -> str:
    """A key for people.

    >>> key_text(("acme",)), key_text(("acme", 7))
    ('acme', 'acme, 7')
    """
    return ", ".join(str(part) for part in key)[:KEY_CHARACTERS_MAX]


def summed(step: str, texts: Iterable[str]) -> StepLoad:
    """What the tasks of some epochs counted, together.

    >>> one = counted(["s", "0", 0], np.array([1, 1, 2]), np.array([5, 5, 6]), lambda at: (["a", "a", "b"][at],))
    >>> found = summed("count", [one, counted(["s", "1", 0], np.array([2]), None, lambda at: ())])
    >>> dict(found.buckets), [(one.key, one.bucket, one.share) for one in found.keys]
    ({1: 2, 2: 2}, [('a', 1, 0.5), ('b', 2, 0.25)])
    """
    buckets: Counter[int] = Counter()
    keys: Counter[tuple[str, int]] = Counter()
    for text in texts:
        said = json.loads(text)
        buckets.update(dict(zip(*said["buckets"], strict=True)))
        for key, bucket, records in said.get("keys", ()):
            keys[key, bucket] += records
    records = max(1, buckets.total())
    heaviest = keys.most_common(KEYS_NOTED)
    return StepLoad(step, dict(buckets), tuple(HotKey(key, bucket, n / records) for (key, bucket), n in heaviest))
