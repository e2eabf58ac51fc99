"""`lockstep why` tells what was decided, and from which figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.control.policy.decisions import DECISIONS_MAX, Advise, Decision, Rescale, decode, encode
from lockstep.store.sqlite_store import open_store

US = 1_000_000
GROWN = Decision(
    "scale-up", 60 * US, "4 partitions instead of 2", "it uses 91 %", Rescale(4), {"rate_per_s": 900.5}, "done"
)
HOT = Decision("hot-key", 120 * US, "split key 'acme'", "it has 60 % of the records", Advise("split key 'acme'"))


def keep(project: Path, *decisions: Decision) -> None:
    store = open_store(project / ".lockstep", "logins")
    store.set_fact("decisions", encode(decisions))
    store.close()


def test_the_newest_decision_comes_first_with_its_reason_and_outcome(
    lockstep: Callable[..., Any], tmp_path: Path
) -> None:
    keep(tmp_path, GROWN, HOT)
    said = lockstep("why", "logins")
    assert said.code == 0
    assert said.out.splitlines() == [
        "1970-01-01 00:02:00Z  advice: split key 'acme'",
        "    why:      it has 60 % of the records",
        "",
        "1970-01-01 00:01:00Z  4 partitions instead of 2",
        "    why:      it uses 91 %",
        "    from:     rate_per_s 900",
        "    outcome:  done",
    ]
    assert "split" not in lockstep("why", "--last", "1").out.replace("split key 'acme'", "", 2)


def test_programs_get_the_figures_as_they_are(lockstep: Callable[..., Any], tmp_path: Path) -> None:
    keep(tmp_path, GROWN)
    (one,) = lockstep("why", "--json").json()["decisions"]
    assert Decision.from_json(one) == GROWN


def test_a_job_that_decided_nothing_says_so(lockstep: Callable[..., Any], tmp_path: Path) -> None:
    keep(tmp_path)
    said = lockstep("why")
    assert (said.code, said.out) == (0, "") and "decided nothing yet" in said.err


def test_only_the_newest_decisions_are_kept() -> None:
    many = [Decision("skew", number, "w", "y", Advise("w")) for number in range(DECISIONS_MAX + 50)]
    assert [one.at_us for one in decode(encode(many))] == list(range(50, DECISIONS_MAX + 50))
