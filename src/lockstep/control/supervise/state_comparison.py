"""Whether the states of replicas are equal: their digests compared, and the one to suspect named.

What is found is a divergence like one about output, and is judged in the same way (``judging.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from lockstep.runtime.decide.state_digests import Joined, joined_key
from lockstep.store.protocols import Digest, Divergence, Holder, Store, state_stage, subject_text

Live = Mapping[str, int]
"""The replicas that run, and the incarnation of each."""


def disagreements(store: Store, live: Live, every_epochs: int, now_us: int) -> list[Divergence]:
    """States of one epoch that differ between replicas that run; those that are known already are left out."""
    known = {(one.epoch, one.sink) for one in store.divergences() if live.get(one.replica) == one.incarnation}
    found = []
    for epoch, subject in store.digest_mismatches():
        if state_stage(subject) is None or (epoch, subject) in known:
            continue
        fresh = fresh_replicas(store, epoch, subject, live, every_epochs)
        found.append(compare(_votes(store.digests(epoch), subject, live), fresh, now_us))
    return [one for one in found if one is not None]


def compare(votes: Sequence[Digest], fresh: Collection[str], now_us: int) -> Divergence | None:
    """What is to be judged about these digests of one state, None if all are equal.

    Accused is whoever is most alone; among equals, whoever has just joined.
    """
    counts = Counter(one.digest for one in votes)
    if len(counts) < 2:
        return None
    by_name = sorted(votes, key=lambda one: one.replica)
    accused = min(reversed(by_name), key=lambda one: (counts[one.digest], one.replica not in fresh))
    others = [one for one in by_name if one.digest != accused.digest]
    other = min(others, key=lambda one: (-counts[one.digest], one.replica in fresh))
    return Divergence(
        epoch=accused.epoch,
        sink=accused.sink,
        replica=accused.replica,
        incarnation=accused.incarnation,
        published_by=str(Holder(other.replica, other.incarnation)),
        digest=accused.digest,
        published_digest=other.digest,
        detail=describe(by_name, fresh),
        at_us=now_us,
    )


def fresh_replicas(store: Store, epoch: int, subject: str, live: Live, every_epochs: int) -> set[str]:
    """Those for which this is the first comparison since they joined, or all but: the first to be suspected."""
    stage = state_stage(subject)
    found = set()
    for name, incarnation in live.items():
        joined = Joined.from_text(store.fact(joined_key(name)))
        if joined is None or joined.incarnation != incarnation or stage is None:
            continue
        # At -1 it began with no state: all it has it has computed itself. Below the floor the digests are forgotten:
        # nobody knows any more whether it has agreed, and it must not be suspected for that.
        at = joined.epochs.get(stage, -1)
        recent = store.floor() <= at <= epoch <= at + every_epochs
        if recent and not _has_agreed(store.digests(at), subject, Holder(name, incarnation)):
            found.add(name)
    return found


def describe(votes: Sequence[Digest], fresh: Collection[str]) -> str:
    """What a person should read about states that differ."""
    first = votes[0]
    lines = [f"epoch {first.epoch}, {subject_text(first.sink)}:"]
    lines += [f"  {one.replica} has {one.rows} rows in it, digest {one.digest}" for one in votes]
    lines += [f"  {one.replica} has just joined" for one in votes if one.replica in fresh]
    lines.append("  the output of this epoch is compared by itself: it need not differ yet")
    return "\n".join(lines)


def _votes(digests: Sequence[Digest], subject: str, live: Live) -> list[Digest]:
    """What the replicas that run say: all that run at one time run the same code."""
    return [one for one in digests if one.sink == subject and live.get(one.replica) == one.incarnation]


def _has_agreed(digests: Sequence[Digest], subject: str, holder: Holder) -> bool:
    about = [one for one in digests if one.sink == subject]
    own = {one.digest for one in about if Holder(one.replica, one.incarnation) == holder}
    return any(one.digest in own for one in about if one.replica != holder.replica)
