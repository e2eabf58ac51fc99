"""What a verb will do, said before it is done; and doing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lockstep.config import PARTITIONS
from lockstep.control.operations.verbs import PARTITIONS_MAX, REPLICAS_MAX, JobVerbs, Manner
from lockstep.errors import ServiceError
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import link, path, section

Values = Mapping[str, str]


@dataclass(frozen=True)
class Verb:
    """One thing that can be asked of a job."""

    title: str
    happens: tuple[str, ...]
    """What will happen, sentence by sentence."""
    ask: Callable[[JobVerbs, Values, Manner], int | None]
    """Asks for it; the number of the operation, None if there is none."""
    button: str
    fields: Callable[[Look], Sequence[Html]] = lambda _look: ()
    danger: bool = False


def number(values: Values, name: str) -> int | None:
    """A field that is a number or empty. LS0781 if it is something else.

    >>> number({"replicas": " 3 "}, "replicas"), number({"replicas": ""}, "replicas")
    (3, None)
    """
    text = values.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ServiceError(
            "LS0781", f"{name}: {text[:40]!r} is not a number", hint="give digits alone, or leave it empty."
        )
    return int(text)


def _rescale(verbs: JobVerbs, values: Values, manner: Manner) -> int:
    asked = {name: number(values, name) for name in ("replicas", "partitions", "cores")}
    return verbs.rescale(**asked, manner=manner).number


def _move(verbs: JobVerbs, values: Values, manner: Manner) -> int:
    return verbs.move(values.get("replica", ""), values.get("host", "").strip(), manner).number


def _stop(verbs: JobVerbs, _values: Values, _manner: Manner) -> None:
    verbs.stop()


def _kill(verbs: JobVerbs, _values: Values, _manner: Manner) -> None:
    verbs.kill()


def _field(label: str, name: str, now: str, most: int) -> Html:
    field = el("input", name=name, inputmode="numeric", pattern="[0-9]*", autocomplete="off", placeholder=now)
    return el("label", label, field, el("small", f"now {now}, at most {most:,}"))


def _shape_fields(look: Look) -> Sequence[Html]:
    spark = look.order.settings.get("spark", {}) if look.order is not None else {}
    partitions = str(spark.get("conf", {}).get(PARTITIONS, 1))
    cores = str(spark.get("master", "")).removeprefix("local[").removesuffix("]") or "as it is"
    return (
        _field("Replicas", "replicas", str(look.settings.replicas), REPLICAS_MAX),
        _field("Partitions of state", "partitions", partitions, PARTITIONS_MAX),
        _field("Cores of each replica", "cores", cores, 1_024),
    )


def _move_fields(look: Look) -> Sequence[Html]:
    options = [el("option", one.replica, value=one.replica) for one in look.overview.health.replicas]
    return (
        el("label", "Replica", el("select", options, name="replica")),
        el("label", "To host", el("input", name="host", required=True, autocomplete="off")),
    )


VERBS: Mapping[str, Verb] = {
    "rescale": Verb(
        "Rescale",
        (
            "A number of replicas: some are started, or the newest leave.",
            "Partitions or cores: replicas of the new shape join one at a time; each is seeded, catches up "
            "and has to agree, then an old one leaves.",
            "Output goes on meanwhile. What is not done by its deadline is taken back.",
        ),
        _rescale,
        "Rescale it",
        _shape_fields,
    ),
    "restart": Verb(
        "Restart",
        (
            "Every replica is replaced by a new process, one at a time.",
            "The others publish meanwhile, so output goes on.",
        ),
        lambda verbs, _values, manner: verbs.restart(manner).number,
        "Restart it",
    ),
    "move": Verb(
        "Move a replica",
        (
            "A replica on the other host is seeded and catches up; then the one here leaves.",
            "Output goes on meanwhile.",
        ),
        _move,
        "Move it",
        _move_fields,
    ),
    "deactivate": Verb(
        "Deactivate",
        (
            "No further epoch is sealed: output stops after those under way, and input waits.",
            "Replicas stay as they are, so that activating goes on within a second.",
        ),
        lambda verbs, _values, manner: verbs.deactivate(manner).number,
        "Deactivate it",
        danger=True,
    ),
    "activate": Verb(
        "Activate",
        ("Epochs are sealed again, from where it was deactivated. What waited is read first.",),
        lambda verbs, _values, manner: verbs.activate(manner).number,
        "Activate it",
    ),
    "stop": Verb(
        "Stop",
        (
            "The epochs under way are finished, then every replica ends. Output stops.",
            "Nothing is lost: the next run goes on from there.",
        ),
        _stop,
        "Stop it",
        danger=True,
    ),
    "kill": Verb(
        "Kill",
        (
            "Every replica ends at once; epochs under way are computed again when the job starts.",
            "Nothing is lost and nothing comes twice. Stopping is gentler.",
        ),
        _kill,
        "Kill it",
        danger=True,
    ),
}
SETTLING: Mapping[str, Verb] = {
    "commit": Verb(
        "Go on with the operation",
        ("The operation goes on to its next step without waiting any longer.",),
        lambda _verbs, _values, _manner: None,
        "Go on with it",
    ),
    "rollback": Verb(
        "Take the operation back",
        ("What it has started ends, and the job is as it was before it was asked. Output goes on meanwhile.",),
        lambda _verbs, _values, _manner: None,
        "Take it back",
        danger=True,
    ),
}


def unknown_verb(name: str) -> ServiceError:
    """Nothing of that name can be asked."""
    return ServiceError(
        "LS0782", f"nothing called {name[:40]!r} can be asked of a job", hint=f"there are: {', '.join(VERBS)}."
    )


def confirm_page(look: Look, verb: Verb, action: str, hidden: Mapping[str, str]) -> Page:
    """What will happen, the fields that it needs, and a button that does it."""
    fields: list[Child] = [el("input", type="hidden", name=name, value=value) for name, value in hidden.items()]
    form = el(
        "form",
        *fields,
        el("div", verb.fields(look), class_="fields"),
        el(
            "p",
            el("button", verb.button, type="submit", class_="button danger" if verb.danger else "button main"),
            link("Leave it as it is", "jobs", look.job),
            class_="buttons",
        ),
        method="post",
        action=action,
    )
    what = el("ul", [el("li", one) for one in verb.happens], class_="happens")
    title = f"{verb.title}: what will happen"
    return Page(f"{verb.title} {look.job}", [headline(look), section("confirm", title, what, form)], look.job, "ask")


def ask_path(job: str, verb: str, operation: int | None = None) -> str:
    """Where a verb is confirmed and asked for.

    >>> ask_path("logins", "restart"), ask_path("logins", "commit", 7)
    ('/jobs/logins/ask/restart', '/jobs/logins/operations/7/ask/commit')
    """
    return (
        path("jobs", job, "ask", verb) if operation is None else path("jobs", job, "operations", operation, "ask", verb)
    )
