"""New code for a job that runs: whether its state can follow, its results can be compared, and where it is put."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lockstep.agent.client import AgentClient
from lockstep.agent.contact import Contact
from lockstep.api.loading import LoadedJob, load_job, save_code
from lockstep.connect.tables import TABLES, copies_in
from lockstep.control.hosts.host_directory import bring_code
from lockstep.control.operations.rolling import KEEP_S
from lockstep.control.operations.verbs import PLAINLY, JobVerbs, Manner
from lockstep.errors import LockstepError, ServiceError
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.plan.joins import TableJoin
from lockstep.plan.steps import EventTime
from lockstep.runtime.desired_run import DesiredRun
from lockstep.runtime.transfer.snapshots import host_token, tls_files
from lockstep.store.home import job_folder
from lockstep.store.opening import announced_hosts
from lockstep.store.protocols import Store


def upgrade_code(
    store: Store,
    job: str,
    loaded: LoadedJob,
    home: Path,
    *,
    same_results: bool = False,
    keep_s: float = KEEP_S,
    manner: Manner = PLAINLY,
) -> int:
    """Ask that a running job goes on with other code; the number of the operation."""
    verbs = JobVerbs(store, job)
    after = with_code(store, verbs.current(), loaded, home, same_results=same_results)
    return verbs.upgrade(after, same_results=same_results, keep_s=keep_s, manner=manner).number


def with_code(store: Store, before: DesiredRun, loaded: LoadedJob, home: Path, *, same_results: bool) -> DesiredRun:
    """The job with other code, which is put where replicas find it. Refused before anything runs, if it has to be."""
    folder = job_folder(home, before.job)
    old, new = load_job(str(folder / before.job_file)).job.graph(), loaded.job.graph()
    _check_state_follows(old, new)
    _check_ends(old, new)
    if not same_results:
        _check_comparable(new, before)
    file = save_code(loaded, folder / "code" / loaded.code_hash[:16])
    after = replace(
        before,
        job_file=f"{file.relative_to(folder)}:{loaded.variable}",
        code_hash=copies_in(store, folder / TABLES).with_code(loaded.code_hash),
    )
    _bring_everywhere(store, after, folder)
    return after


def _check_state_follows(old: Graph, new: Graph) -> None:
    if old.name != new.name:
        raise _refused(f'the new code is of job "{new.name}"', "submit it: another name is another job.")
    changed = differences(old.fingerprint(), new.fingerprint())
    if changed:
        raise _refused(
            "; ".join(changed),
            "leave the steps with state as they are, or start the new code as a job of its own: give Job(...) another "
            "name and its sinks other places.",
        )


def _check_ends(old: Graph, new: Graph) -> None:
    """What is sealed in an entry, and where output goes, is the same for both: they share the ledger and the sinks."""
    for what, before, after in (
        ("sources", _specs(old, "sources"), _specs(new, "sources")),
        ("sinks", _specs(old, "sinks"), _specs(new, "sinks")),
        ("event_time steps", _times(old), _times(new)),
        ("tables", _tables(old), _tables(new)),
    ):
        if before != after:
            names = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
            raise _refused(
                f"its {what} differ: {', '.join(names)}",
                "stop the job and start it with the new code: `lockstep stop`, then `lockstep run NEW_JOB`.",
            )


def _check_comparable(new: Graph, before: DesiredRun) -> None:
    if len(new.stages) > 1 or new.loops:
        raise _refused(
            f"it has {len(new.stages)} stages, or a loop: the journals inside it hold the old results, so the new ones "
            "cannot be computed beside them",
            "if results stay the same, say so with --same-results; otherwise stop the job and start the new code.",
        )
    if before.settings["run"]["order"] == "derived":
        raise _refused(
            'its order is "derived": no sealed entry could say from when on the new results count',
            "if results stay the same, say so with --same-results; otherwise stop the job and start the new code.",
        )


def _refused(why: str, hint: str) -> ServiceError:
    return ServiceError("LS0747", "the running job cannot take this code over", why=f"{why}.", hint=hint)


def _specs(graph: Graph, kind: str) -> Mapping[str, object]:
    steps = graph.sources if kind == "sources" else graph.sinks
    return {step.id: {"kind": step.spec.kind, **step.spec.to_json()} for step in steps}


def _times(graph: Graph) -> Mapping[str, object]:
    return {step.id: True for step in graph.steps if isinstance(step, EventTime)}


def _tables(graph: Graph) -> Mapping[str, object]:
    return {str(step.table): True for step in graph.steps if isinstance(step, TableJoin)}


def _bring_everywhere(store: Store, after: DesiredRun, folder: Path) -> None:
    """Where hosts share the store, whoever coordinates is on one of them: each gets the code now."""
    hosts = announced_hosts(after.store) if not after.store.startswith("sqlite:") else {}
    settings = after.parsed_settings().hosts
    for name, about in hosts.items():
        address = str(about["address"])
        tls = tls_files(settings) if address.startswith("https:") else None
        contact = Contact(address, host_token(settings) or "", str(about["log"]), name, str(about["instance"]), tls)
        client = AgentClient(contact, after.job, 0)
        try:
            bring_code(client, store, folder, after.job_file)
        except (LockstepError, OSError) as error:
            # One that is away gets it from whoever coordinates, once it is back.
            store.add_event("host-not-told", f"{name}: {error}")
        finally:
            client.close()
