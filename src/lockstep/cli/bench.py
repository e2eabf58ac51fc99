"""`lockstep bench`: the figures that Lockstep claims, measured here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.assignments import assignments
from lockstep.cli.output import out, print_json
from lockstep.cli.project import project_of

if TYPE_CHECKING:
    from lockstep.bench.benches import Bench

app = typer.Typer(
    help="Measure failover, latency, throughput, epoch, store, buckets, query, change, state, hosts, kafka and order. "
    "Exit code 1: a target was missed.",
    no_args_is_help=True,
)

Quick = Annotated[bool, typer.Option("--quick", help="A short run: to see that it works, not to quote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")]
Save = Annotated[bool, typer.Option("--save", help="Also write them to benchmarks/results/ in the project folder.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the temporary folder: jobs, logs, output.")]
Kills = Annotated[int | None, typer.Option("--kills", min=1, help="How many kills, instead of ten.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting of the runs that are measured: KEY=VALUE.")]


_COMMANDS = {
    "latency": (
        "Time per epoch and from end to end, beside the same query hand-written in PySpark (about 14 minutes).",
        "latency --quick",
    ),
    "throughput": (
        "Windowed count and sum over 2 million JSON lines, beside hand-written PySpark (about 6 minutes).",
        "throughput --quick",
    ),
    "store": (
        "Rates of the journal and the ledger, and memory while records pass through (about a minute).",
        "store --json",
    ),
    "epoch": (
        "The warm stateful epoch and the restart of a replica, split into their parts (about 6 minutes).",
        "epoch --quick",
    ),
    "buckets": (
        "A small epoch of a keyed Python step with 16, 64, 128 and 256 buckets, in turn (about 3 minutes).",
        "buckets --quick",
    ),
    "query": (
        "State asked from outside by key while 2,000 events/s flow, and what epochs feel of it (about 4 minutes).",
        "query --quick",
    ),
    "change": (
        "A job is rescaled 1, 2, 4, 1 partitions and upgraded under 1,000 events/s; what a reader notices, beside "
        "hand-written PySpark (about 10 minutes).",
        "change --quick",
    ),
    "state": (
        "What each step of a rescale takes with 10 MB, 100 MB and 1 GB of state (about 15 minutes).",
        "state --quick",
    ),
    "hosts": (
        "A job from topic to topic on three hosts: a host, a cable, ZooKeeper's leader and the coordinator are lost "
        "(about 7 minutes; real Kafka and ZooKeeper).",
        "hosts --quick",
    ),
    "kafka": (
        "Topic to topic, beside the same query hand-written in PySpark with Spark's own connector "
        "(about 6 minutes; real Kafka).",
        "kafka --quick",
    ),
    "order": (
        "Epochs agreed on beside epochs derived from Kafka, with kills; needs Kafka and ZooKeeper (about 25 minutes).",
        "order --quick",
    ),
    "all": ("All but buckets, query, change, state, hosts, kafka and order, one after the other.", "all --save"),
}
_ALL = ["store", "epoch", "latency", "throughput", "failover"]


def _add_command(name: str, about: str, example: str) -> None:
    """All benches have the same options; they differ in what they say of themselves."""

    def measure(
        context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
    ) -> None:
        names = _ALL if name == "all" else [name]
        _measure(context, names, quick=quick, as_json=as_json, save=save, keep=keep)

    app.command(name, help=f"{about}\n\n[bold]Example[/bold]\n\n  lockstep bench {example}")(measure)


@app.command("failover")
def failover(
    context: typer.Context,
    kills: Kills = None,
    settings: Set = None,
    quick: Quick = False,
    as_json: AsJson = False,
    save: Save = False,
    keep: Keep = False,
) -> None:
    """Kill replicas with -9 under load; the gaps that a reader of the sink sees (about 12 minutes).

    [bold]Example[/bold]

      lockstep bench failover --kills 4 --set boot_share=gentle
    """
    from lockstep.bench.failover import run_failover

    bench = partial(run_failover, kills=kills, settings=assignments("--set", settings))
    _measure(context, ["failover"], quick=quick, as_json=as_json, save=save, keep=keep, bench=bench)


for _name, (_about, _example) in _COMMANDS.items():
    _add_command(_name, _about, _example)


def _measure(
    context: typer.Context,
    names: list[str],
    *,
    quick: bool,
    as_json: bool,
    save: bool,
    keep: bool,
    bench: Bench | None = None,
) -> None:
    """Run the benches and show each as soon as it is there; as JSON, all of them in one document."""
    from lockstep.bench import report as reports
    from lockstep.bench.benches import run_bench
    from lockstep.cli.output import to_stderr

    done = []
    for name in names:
        found = run_bench(name, quick=quick, keep=keep, bench=bench)
        done.append(found)
        if not as_json:
            reports.show(found, out)
        if save:
            to_stderr(f"saved {reports.save(found, project_of(context).folder)}")
    if as_json:
        documents = [reports.as_json(found) for found in done]
        print_json(documents[0] if len(documents) == 1 else documents)
    raise typer.Exit(0 if all(found.met for found in done) else 1)
