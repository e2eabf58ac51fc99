"""Every word of the vocabulary is whole, and says what it takes."""

from __future__ import annotations

import re

import pytest

from lockstep.chaos.catalogue import all_actions, chosen
from lockstep.chaos.vocabulary import Need, Part
from lockstep.errors import RunError


def test_every_action_has_a_name_of_its_own_and_a_sentence() -> None:
    names = [action.name for action in all_actions()]
    assert len(set(names)) == len(names) >= 14
    for action in all_actions():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", action.name)
        assert len(action.title) > 20 and not action.title.endswith(".")


def test_whatever_takes_a_replica_needs_another_one() -> None:
    for action in all_actions():
        if Part.REPLICA in action.takes:
            assert Need.OTHER_REPLICA in action.requires, action.name


def test_what_the_issue_asks_for_is_there() -> None:
    names = {action.name for action in all_actions()}
    assert names >= {
        "kill-driver", "kill-jvm", "kill-workers", "kill-supervisor", "pause-replica", "fill-disk", "delay-store",
        "fail-store", "damage-checkpoint", "delete-last-commit", "add-load", "go-quiet", "feed-late", "feed-malformed",
        "stop-and-start", "kill-agent", "crash-sealed-not-run", "crash-run-no-digest", "crash-digest-not-published",
        "crash-published-not-committed", "delay-network", "lose-network", "cut-network",
        "rescale-partitions", "rescale-replicas", "restart", "upgrade", "upgrade-in-shadow", "deactivate",
    }  # fmt: skip


def test_an_unknown_action_is_refused_with_what_there_is() -> None:
    with pytest.raises(RunError, match="kill-drivr") as raised:
        chosen(["kill-drivr"])
    assert raised.value.code == "LS0651"
    assert "kill-driver" in raised.value.hint
    assert [action.name for action in chosen(["kill-jvm"])] == ["kill-jvm"]
