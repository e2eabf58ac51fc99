"""`lockstep sim`: run replicas, supervisor and store in a simulation, with every fault that a seed draws."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.output import err, out, plain_table, to_stderr
from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    from lockstep.sim.many_seeds import Wish
    from lockstep.sim.one_seed import Failure
    from lockstep.sim.world import World

_SEEDS = 1000


def sim(
    seed: Annotated[int | None, typer.Option(metavar="N", help="Run this one seed.", show_default=False)] = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help=f"Explore so many seeds (without --seed: {_SEEDS}).", show_default=False),
    ] = None,
    first: Annotated[int, typer.Option("--from", metavar="N", help="The first seed to explore.")] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Tell the whole story, one line per event.")] = False,
    replicas: Annotated[
        int | None, typer.Option(min=1, max=3, metavar="N", help="How many replicas (else the seed says).")
    ] = None,
    hosts: Annotated[
        int,
        typer.Option(
            min=0,
            max=9,
            metavar="N",
            help="Simulate so many hosts, which die, are cut off and have wrong clocks.",
            show_default=False,
        ),
    ] = 0,
    operations: Annotated[
        bool,
        typer.Option("--operations", help="Change the job meanwhile: rescale, restart, upgrade, move, deactivate."),
    ] = False,
    policy: Annotated[
        bool, typer.Option("--policy", help="Simulate days of load and failures, for what a job decides about itself.")
    ] = False,
    plant: Annotated[
        str, typer.Option(metavar="BUG", help="Plant a bug, to see which promise breaks.", show_default=False)
    ] = "",
    changed: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME=VALUE", help="Change the seed's scenario; may be given several times."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Processes side by side.")] = os.cpu_count() or 1,
    bugs: Annotated[bool, typer.Option("--bugs", help="List the bugs that can be planted, and end.")] = False,
) -> None:
    """Simulate a job under faults and check every promise after every step.

    A seed fixes everything: who crashes or hangs when, how long writes take, which clock jumps. Replicas, supervisor
    and store are models in one process: no Spark, no files. Exit code 1 if a promise broke; then the first
    failing seed is shown, shrunk.

    With --hosts the replicas, spares and candidates for coordinating the job live on hosts h1, h2, ..., each with an
    agent, a clock and a disk of its own. A host dies with all its processes, or is cut off: its processes go on, the
    coordination service ends their sessions, others take their place, and it comes back with zombies. The store is then
    a model of ZooKeeper.

    With --operations somebody changes the job while all that happens: other numbers of partitions and replicas,
    restarts, new code with the same or with other results, replicas moved between hosts, the job deactivated. Whoever
    supervises is killed up to ten times meanwhile. Each change is done or rolled back, once and in time.

    With --policy the decisions of [policy] are simulated: days of load, crashes, storms of them and lost hosts, in
    coarse steps. Checked is what a policy must never do, how often what was asked for is met, and what that costs.

    [bold]Examples[/bold]

      lockstep sim --seed 4711 --trace

      lockstep sim --seeds 10000

      lockstep sim --hosts 3 --seeds 1000

      lockstep sim --operations --seeds 500

      lockstep sim --plant unbounded-lead

      lockstep sim --hosts 3 --plant zombie-publishes

      lockstep sim --policy --seeds 10000
    """
    if policy:
        raise typer.Exit(
            _policy(
                seed, seeds, first, jobs, plant, trace=trace, bugs=bugs, fixed=(replicas, hosts, changed, operations)
            )
        )
    if bugs:
        _list_bugs()
        return
    if trace and (seed is None or seeds is not None):
        raise EnvironmentError_("LS0016", "--trace tells of one seed", hint="name it with --seed, without --seeds.")
    wish = _wish(plant, replicas, changed or [], hosts, operations=operations)
    if seed is not None and seeds is None:
        raise typer.Exit(_run_one(wish, seed, trace=trace))
    raise typer.Exit(_explore(wish, first if seed is None else seed, seeds or _SEEDS, jobs))


def _policy(
    seed: int | None,
    seeds: int | None,
    first: int,
    jobs: int,
    plant: str,
    *,
    trace: bool,
    bugs: bool,
    fixed: tuple[object, ...],
) -> int:
    from lockstep.cli.sim_policy import explore_policies, list_bugs, policy_wish, run_one

    if any(fixed) or (trace and seed is None):
        raise EnvironmentError_(
            "LS0016",
            "--policy draws its scenarios from the seed alone",
            hint="leave --replicas, --hosts, --operations and --with out; --trace tells of one seed (--seed).",
        )
    if bugs:
        list_bugs()
        return 0
    wish = policy_wish(plant)
    if seed is not None and seeds is None:
        return run_one(wish, seed, trace=trace)
    return explore_policies(wish, first if seed is None else seed, seeds or _SEEDS, jobs)


def _list_bugs() -> None:
    from lockstep.sim.planted_bugs import BUGS

    table = plain_table("bug", "breaks", "what is wrong")
    for bug in BUGS:
        table.add_row(bug.name, bug.promise, bug.sentence)
    out.print(table)


def _wish(plant: str, replicas: int | None, changed: Sequence[str], hosts: int, *, operations: bool) -> Wish:
    from lockstep.sim.many_seeds import Wish
    from lockstep.sim.planted_bugs import BUGS, bug_named

    if plant and bug_named(plant) is None:
        raise EnvironmentError_(
            "LS0016",
            f'there is no bug "{plant}" to plant',
            hint=f"one of: {', '.join(bug.name for bug in BUGS)}. `lockstep sim --bugs` says what they are.",
        )
    changes = _parsed(changed)
    changes = {**changes, "replicas": replicas} if replicas is not None else changes
    return Wish(plant, changes, hosts, operations)


def _parsed(changed: Sequence[str]) -> Mapping[str, Any]:
    """What ``--with NAME=VALUE`` says, checked against what a scenario has."""
    from pydantic import TypeAdapter, ValidationError

    from lockstep.sim.scenario import Scenario

    found: dict[str, Any] = {}
    for one in changed:
        name, _, value = one.partition("=")
        names = [field for field in Scenario.__dataclass_fields__ if field != "settings"]
        if name not in names:
            raise EnvironmentError_("LS0016", f'a scenario has no "{name}"', hint=f"it has: {', '.join(names)}.")
        try:
            whole = TypeAdapter(Scenario).validate_python({name: json.loads(value)})
        except (ValidationError, ValueError):
            default = json.dumps(getattr(Scenario(), name))
            example = shlex.quote(f"{name}={default}")
            raise EnvironmentError_(
                "LS0016", f"--with {one} cannot be read", hint=f"give a value as in JSON: --with {example}."
            ) from None
        found[name] = getattr(whole, name)
    return found


def _run_one(wish: Wish, seed: int, *, trace: bool) -> int:
    from lockstep.sim.one_seed import Failure

    found = wish.run(seed, whole=trace)
    if isinstance(found, Failure):
        _tell(found.story)
        out.print(f"[bold red]seed {seed} breaks a promise[/bold red]", soft_wrap=True)
        out.print(found.violation, soft_wrap=True, markup=False)
        return 1
    if trace:
        _tell(found.history.story)
    out.print(_summary(seed, found), soft_wrap=True)
    return 0


def _tell(story: Sequence[str]) -> None:
    for line in story:
        out.print(line, soft_wrap=True, markup=False)


def _summary(seed: int, world: World) -> str:
    replicas, epochs, took_s = world.scenario.replicas, world.head + 1, world.timeline.elapsed_s
    met = f"{world.faults.struck} faults, {len(world.processes)} starts"
    met += f", {world.operator.count} operations" if world.scenario.operations else ""
    on_hosts = f" on {world.scenario.hosts} hosts" if world.scenario.hosts else ""
    return f"seed {seed}: {replicas} replicas{on_hosts}, {epochs} epochs in {took_s:.0f} s, {met}: every promise held"


def _explore(wish: Wish, first: int, count: int, jobs: int) -> int:
    from lockstep.sim.many_seeds import explore

    began_s = time.monotonic()
    done: int = 0
    failure: Failure | None = None
    try:
        with err.status("starting", spinner="line") as status:
            for done, failure in explore(wish, first, count, jobs):  # noqa: B007 (the last of them counts)
                status.update(f"{done} of {count} seeds, {done / (time.monotonic() - began_s):.0f} a second")
    except KeyboardInterrupt:
        to_stderr(f"stopped after {done} of {count} seeds, from {first} on: every promise held")
        return 130
    took_s = time.monotonic() - began_s
    to_stderr(f"{done} seeds in {took_s:.1f} s, {done / took_s:.0f} a second")
    if failure is None:
        out.print(f"seeds {first} to {first + count - 1}: every promise held", soft_wrap=True)
        return 0
    _show_shrunk(wish, failure)
    return 1


def _show_shrunk(wish: Wish, failure: Failure) -> None:
    from lockstep.sim.shrinking import changes

    out.print(f"[bold red]seed {failure.seed} breaks a promise[/bold red]", soft_wrap=True)
    out.print(failure.violation, soft_wrap=True, markup=False)
    smallest = failure
    try:
        with err.status("shrinking", spinner="line") as status:
            smallest = wish.shrink(failure, lambda one: status.update(f"shrinking: {one.strikes} faults"))
    except KeyboardInterrupt:
        to_stderr("not shrunk any further")
    out.print("\nThe smallest scenario found in which it breaks:", soft_wrap=True)
    _tell(smallest.story)
    out.print(smallest.violation, soft_wrap=True, markup=False)
    differs = changes(smallest.scenario, wish.base(failure.seed))
    words = ["lockstep", "sim", "--seed", str(failure.seed), *(["--hosts", str(wish.hosts)] if wish.hosts else [])]
    words += ["--operations"] if wish.operations else []
    words += ["--plant", wish.bug] if wish.bug else []
    for name, value in differs.items():
        words += ["--with", f"{name}={json.dumps(value)}"]
    out.print(f"\nagain: {shlex.join([*words, '--trace'])}", soft_wrap=True, markup=False)
