"""Who is right when replicas disagree."""

from __future__ import annotations

from typing import Literal

from lockstep.control.supervise.judging import VOTES_TIMEOUT_S, Judgement, judge
from lockstep.store.protocols import Digest, Divergence

NOW_US = 1_700_000_000_000_000


def _divergence(replica: str, digest: str, published_by: str = "r0.1", published: str = "A") -> Divergence:
    return Divergence(7, "out", replica, 1, published_by, digest, published, "rows differ", NOW_US)


def _votes(**votes: str) -> list[Digest]:
    mine = [Digest(7, "out", replica, 1, digest, 1, "v") for replica, digest in votes.items()]
    return [*mine, *(Digest(7, "another-sink", replica, 1, "Z", 1, "v") for replica in votes)]


def _judged(
    divergence: Divergence,
    digests: list[Digest],
    *live: str,
    on_divergence: Literal["stop", "continue"] = "stop",
    after_s: float = 0,
) -> Judgement | None:
    return judge(divergence, digests, live, on_divergence, NOW_US + round(after_s * 1e6))


def test_two_that_disagree_stop_the_job() -> None:
    judged = _judged(_divergence("r1", "B"), _votes(r0="A", r1="B"), "r0", "r1")
    assert judged is not None and judged.verdict == "stop"


def test_two_that_disagree_go_on_with_the_published_copy_if_told_so() -> None:
    judged = _judged(_divergence("r1", "B"), _votes(r0="A", r1="B"), "r0", "r1", on_divergence="continue")
    assert judged is not None
    assert (judged.verdict, judged.wrong, judged.published_is_wrong) == ("reseed", (), False)


def test_with_three_everybody_is_heard_first() -> None:
    votes = _votes(r0="A", r1="B")
    assert _judged(_divergence("r1", "B"), votes, "r0", "r1", "r2") is None
    late = _judged(_divergence("r1", "B"), votes, "r0", "r1", "r2", after_s=VOTES_TIMEOUT_S + 1)
    assert late is not None and late.verdict == "stop"


def test_the_odd_one_out_is_seeded_again() -> None:
    judged = _judged(_divergence("r1", "B"), _votes(r0="A", r1="B", r2="A"), "r0", "r1", "r2")
    assert judged is not None
    assert (judged.verdict, judged.wrong, judged.published_is_wrong) == ("reseed", (), False)


def test_a_publisher_in_the_minority_is_removed_and_the_published_copy_called_wrong() -> None:
    judged = _judged(_divergence("r1", "B"), _votes(r0="A", r1="B", r2="B"), "r0", "r1", "r2")
    assert judged is not None
    assert (judged.verdict, judged.wrong, judged.published_is_wrong) == ("go-on", ("r0",), True)


def test_the_vote_of_a_publisher_that_is_gone_still_counts() -> None:
    judged = _judged(_divergence("r1", "B"), _votes(r1="B", r2="B"), "r1", "r2")
    assert judged is not None and (judged.verdict, judged.published_is_wrong) == ("go-on", True)
    judged = _judged(_divergence("r1", "B"), _votes(r1="B", r2="A"), "r1", "r2")
    assert judged is not None and (judged.verdict, judged.published_is_wrong) == ("reseed", False)


def test_three_opinions_are_no_majority() -> None:
    judged = _judged(_divergence("r1", "B"), _votes(r0="A", r1="B", r2="C"), "r0", "r1", "r2")
    assert judged is not None and judged.verdict == "stop"


def test_two_against_two_are_no_majority() -> None:
    votes = _votes(r0="A", r1="B", r2="A", r3="B")
    judged = _judged(_divergence("r1", "B"), votes, "r0", "r1", "r2", "r3")
    assert judged is not None and judged.verdict == "stop"


def test_a_replica_that_contradicts_its_own_earlier_incarnation_finds_no_majority() -> None:
    judged = _judged(_divergence("r0", "B", published_by="r0.1"), _votes(r0="B"), "r0")
    assert judged is not None and judged.verdict == "stop"


def test_other_wrong_replicas_are_named_too() -> None:
    votes = _votes(r0="A", r1="B", r2="A", r3="A", r4="C")
    judged = _judged(_divergence("r1", "B"), votes, "r0", "r1", "r2", "r3", "r4")
    assert judged is not None and (judged.verdict, judged.wrong) == ("reseed", ("r4",))
