"""What a replica concludes from the answer of a sink: pure functions, the same in production and in the simulator."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.connect.protocols import Publication
from lockstep.store.protocols import Divergence, Holder


def is_any_ours(publications: Iterable[Publication], holder: Holder) -> bool:
    """Whether any of these publications is the holder's own.

    >>> is_any_ours([Publication(7, "aa", 1, "r0.1", "v1")], Holder("r0", 1))
    True
    >>> is_any_ours([Publication(7, "aa", 1, "r0.1", "v1")], Holder("r0", 2))
    False
    """
    return any(one.by == str(holder) for one in publications)


def disagrees(wanted: Publication, held: Publication) -> bool:
    """Whether the same code computed something else: other versions of a job may answer differently.

    >>> ours, theirs = Publication(7, "aa", 1, "r0.1", "v1"), Publication(7, "bb", 1, "r1.4", "v1")
    >>> disagrees(ours, theirs), disagrees(ours, ours)
    (True, False)
    """
    return held.digest != wanted.digest and held.version == wanted.version


def judged_divergence(divergences: Iterable[Divergence], epoch: int, sink: str, holder: Holder) -> Divergence | None:
    """What the supervisor has decided about this replica's own disagreement, None while it has not."""
    mine = (epoch, sink, holder.replica, holder.incarnation)
    for one in divergences:
        if one.verdict and (one.epoch, one.sink, one.replica, one.incarnation) == mine:
            return one
    return None


def goes_on(judged: Divergence) -> bool:
    """Whether a replica goes on after a verdict; otherwise it ends, to be seeded anew or for good."""
    return judged.verdict == "go-on"
