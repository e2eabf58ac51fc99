"""Who is right when replicas disagree about an epoch, its output or its state: a pure function of reported digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from lockstep.clock import US_PER_S
from lockstep.store.protocols import Digest, Divergence, Holder, state_stage

VOTES_TIMEOUT_S = 10.0
"""How long to wait for the digests of the other replicas before judging with those there are."""
STATE_VOTES_TIMEOUT_S = 60.0
"""The same for digests of state: replicas take turns at those, between epochs, and nobody's output waits for them."""
Verdict = Literal["go-on", "reseed", "stop"]


@dataclass(frozen=True)
class Judgement:
    """What happens to the replica that reported the divergence, and to others that turn out to be wrong."""

    verdict: Verdict
    wrong: tuple[str, ...] = ()
    """Replicas to kill and seed again (besides a ``reseed`` of the reporter)."""
    published_is_wrong: bool = False
    reason: str = ""


def judge(
    divergence: Divergence,
    digests: Sequence[Digest],
    live: Sequence[str],
    on_divergence: Literal["stop", "continue"],
    now_us: int,
    fresh: Collection[str] = (),
) -> Judgement | None:
    """The judgement, or None to wait for more digests.

    Without a majority a replica that is ``fresh`` is the wrong one, if it is alone in that: it has just joined with a
    state, and has agreed with nobody yet.
    """
    votes = {one.replica: one.digest for one in digests if one.sink == divergence.sink and one.replica in live}
    waited_s = (now_us - divergence.at_us) / US_PER_S
    publisher = Holder.replica_of(divergence.published_by)
    # The publisher counts although it may be gone: with two others there can be a majority against it.
    voters = {*live, publisher, divergence.replica}
    of_state = state_stage(divergence.sink) is not None
    if (
        len(voters) >= 3
        and len(votes) < len(live)
        and waited_s < (STATE_VOTES_TIMEOUT_S if of_state else VOTES_TIMEOUT_S)
    ):
        return None
    votes.setdefault(divergence.replica, divergence.digest)
    # The publisher may be gone, but its vote is in the sink.
    votes.setdefault(publisher, divergence.published_digest)
    most, count = Counter(votes.values()).most_common(1)[0]
    if len(votes) < 3 or count * 2 <= len(votes):
        if votes.keys() & set(fresh) == {divergence.replica}:
            return Judgement("reseed", reason="it has just joined, and differs from the first comparison on")
        return _without_majority(divergence, on_divergence, is_seedable=bool(set(live) - {divergence.replica}))
    wrong = tuple(sorted(name for name, vote in votes.items() if vote != most and name != divergence.replica))
    published_is_wrong = divergence.published_digest != most and not of_state
    if divergence.digest == most:
        return Judgement("go-on", wrong, published_is_wrong, "the majority agrees with this replica")
    return Judgement("reseed", wrong, published_is_wrong, "the majority disagrees with this replica")


def _without_majority(
    divergence: Divergence, on_divergence: Literal["stop", "continue"], *, is_seedable: bool
) -> Judgement:
    of_state = state_stage(divergence.sink) is not None
    kept = f"the state of {divergence.published_by}" if of_state else "the published copy"
    if on_divergence == "stop":
        return Judgement("stop", reason="there is no majority to tell who is right")
    if not is_seedable:
        return Judgement("go-on", reason=f"there is nobody to seed from; {kept} stays")
    return Judgement("reseed", reason=f"there is no majority; going on with {kept}")
