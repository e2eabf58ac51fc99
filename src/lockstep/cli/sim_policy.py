"""`lockstep sim --policy`: days of load and failures, decided about by the policy, and checked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lockstep.cli.output import err, out, plain_table, to_stderr
from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    from lockstep.sim.policy.seeds import Failure, Wish


def list_bugs() -> None:
    """The bugs that can be planted into a policy."""
    from lockstep.sim.policy.planted_bugs import BUGS

    table = plain_table("bug", "breaks", "what is wrong")
    for bug in BUGS:
        table.add_row(bug.name, bug.promise, bug.sentence)
    out.print(table)


def policy_wish(plant: str) -> Wish:
    """What to run; a bug that does not exist is refused."""
    from lockstep.sim.policy.planted_bugs import BUGS, bug_named
    from lockstep.sim.policy.seeds import Wish

    if plant and bug_named(plant) is None:
        raise EnvironmentError_(
            "LS0016",
            f'there is no bug "{plant}" to plant into a policy',
            hint=f"one of: {', '.join(bug.name for bug in BUGS)}. `lockstep sim --policy --bugs` says what they are.",
        )
    return Wish(plant)


def run_one(wish: Wish, seed: int, *, trace: bool) -> int:
    """One seed; its story if wanted, or if a promise broke."""
    from lockstep.sim.policy.seeds import Failure, Tally

    found, story = wish.play(seed)
    if isinstance(found, Failure):
        return _show(found)
    for line in story if trace else ():
        out.print(line, soft_wrap=True, markup=False)
    out.print(f"{Tally().plus(found).text}\nseed {seed}: every promise held", soft_wrap=True)
    return 0


def explore_policies(wish: Wish, first: int, count: int, jobs: int) -> int:
    """Many seeds, until one breaks a promise; then what holds only over all of them."""
    from lockstep.sim.policy.seeds import Tally, explore

    began_s = time.monotonic()
    tally, failure = Tally(), None
    with err.status("starting", spinner="line") as status:
        for tally, failure in explore(wish, first, count, jobs):  # noqa: B007 (the last of them counts)
            status.update(f"{tally.seeds} of {count} seeds, {tally.seeds / (time.monotonic() - began_s):.0f} a second")
    took_s = time.monotonic() - began_s
    to_stderr(f"{tally.seeds} seeds in {took_s:.1f} s, {tally.seeds / took_s:.0f} a second")
    out.print(tally.text, soft_wrap=True)
    if failure is not None:
        return _show(failure)
    if tally.violation:
        out.print(f"[bold red]{tally.violation}[/bold red]", soft_wrap=True)
        return 1
    out.print(f"seeds {first} to {first + count - 1}: every promise held", soft_wrap=True)
    return 0


def _show(failure: Failure) -> int:
    for line in failure.story:
        out.print(line, soft_wrap=True, markup=False)
    out.print(f"[bold red]seed {failure.seed} breaks a promise[/bold red]", soft_wrap=True)
    out.print(failure.violation, soft_wrap=True, markup=False)
    return 1
